// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import "./Plain.sol";

/// Refuses every transfer in each third block. A call that is tried in one block and mined in another may revert although it was tried:
/// it costs its fee and its nonce, and pays nothing.
contract Moody is Plain {
    constructor(uint256 supply) Plain(supply) {}

    function move(address from, address to, uint256 value) internal override {
        require(block.number % 3 != 0, "not in this block");
        super.move(from, to, value);
    }
}
