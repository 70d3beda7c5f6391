//! The calls within a transaction, as geth's `callTracer` shows them.

use alloy_primitives::{Address, Bytes, U256};
use revm::Inspector;
use revm::context_interface::ContextTr;
use revm::context_interface::CreateScheme;
use revm::interpreter::{
    CallInputs, CallOutcome, CallScheme, CallValue, CreateInputs, CreateOutcome, InstructionResult, InterpreterResult,
};

use super::execute::revert_reason;

#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// In lower case; it is shown in capitals.
    pub kind: &'static str,
    pub from: Address,
    pub to: Option<Address>,
    /// Not on calls that cannot carry any.
    pub value: Option<U256>,
    pub gas: u64,
    pub gas_used: u64,
    pub input: Bytes,
    pub output: Bytes,
    pub error: Option<String>,
    pub reason: Option<String>,
    pub calls: Vec<Frame>,
}

#[derive(Debug, Default)]
pub(super) struct Tracer {
    open: Vec<Frame>,
    done: Option<Frame>,
}

impl Tracer {
    pub(super) fn finish(&mut self) -> Option<Frame> {
        self.done.take()
    }

    fn begin(&mut self, kind: &'static str, from: Address, to: Option<Address>, value: Option<U256>, input: Bytes) {
        self.open.push(Frame {
            kind,
            from,
            to,
            value,
            gas: 0,
            gas_used: 0,
            input,
            output: Bytes::new(),
            error: None,
            reason: None,
            calls: Vec::new(),
        });
    }

    fn end(&mut self, result: &InterpreterResult, created: Option<Address>) {
        let Some(mut frame) = self.open.pop() else { return };
        frame.gas = result.gas.limit();
        frame.gas_used = result.gas.total_gas_spent();
        frame.output = result.output.clone();
        frame.to = created.or(frame.to);
        if !result.is_ok() {
            frame.error = Some(error_words(result.result));
            frame.reason = revert_reason(&result.output);
        }
        match self.open.last_mut() {
            Some(parent) => parent.calls.push(frame),
            None => self.done = Some(frame),
        }
    }
}

fn error_words(result: InstructionResult) -> String {
    match result {
        InstructionResult::Revert => "execution reverted".to_owned(),
        InstructionResult::OutOfFunds => "insufficient balance for transfer".to_owned(),
        InstructionResult::InvalidJump => "invalid jump destination".to_owned(),
        InstructionResult::CallTooDeep => "max call depth exceeded".to_owned(),
        InstructionResult::OpcodeNotFound | InstructionResult::InvalidFEOpcode => "invalid opcode: INVALID".to_owned(),
        other if format!("{other:?}").contains("OutOfGas") => "out of gas".to_owned(),
        other => format!("{other:?}"),
    }
}

impl<C: ContextTr> Inspector<C> for Tracer {
    fn call(&mut self, context: &mut C, inputs: &mut CallInputs) -> Option<CallOutcome> {
        let value = match inputs.value {
            CallValue::Transfer(value) => Some(value),
            CallValue::Apparent(_) => None,
        };
        let (kind, value) = match inputs.scheme {
            CallScheme::Call => ("call", value),
            CallScheme::CallCode => ("callcode", value),
            CallScheme::DelegateCall => ("delegatecall", None),
            CallScheme::StaticCall => ("staticcall", None),
        };
        let input = Bytes::copy_from_slice(&inputs.input.as_bytes(context));
        // A delegate call runs in the caller's place: the frame names whose code it runs, as geth does.
        let from = if inputs.scheme == CallScheme::DelegateCall { inputs.target_address } else { inputs.caller };
        self.begin(kind, from, Some(inputs.bytecode_address), value, input);
        None
    }

    fn call_end(&mut self, _: &mut C, _: &CallInputs, outcome: &mut CallOutcome) {
        self.end(&outcome.result, None);
    }

    fn create(&mut self, _: &mut C, inputs: &mut CreateInputs) -> Option<CreateOutcome> {
        let kind = match inputs.scheme() {
            CreateScheme::Create2 { .. } => "create2",
            CreateScheme::Create | CreateScheme::Custom { .. } => "create",
        };
        self.begin(kind, inputs.caller(), None, Some(inputs.value()), inputs.init_code().clone());
        None
    }

    fn create_end(&mut self, _: &mut C, _: &CreateInputs, outcome: &mut CreateOutcome) {
        self.end(&outcome.result, outcome.address);
    }

    fn selfdestruct(&mut self, contract: Address, target: Address, value: U256) {
        self.begin("selfdestruct", contract, Some(target), Some(value), Bytes::new());
        if let Some(frame) = self.open.pop()
            && let Some(parent) = self.open.last_mut()
        {
            parent.calls.push(frame);
        }
    }
}
