// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import "./Plain.sol";

/// Emits Transfer events and changes no balance: who believes the event alone credits air. `lie` says it of anybody.
contract Liar is Plain {
    constructor(uint256 supply) Plain(supply) {}

    function lie(address from, address to, uint256 value) external {
        emit Transfer(from, to, value);
    }

    function move(address from, address to, uint256 value) internal override {
        emit Transfer(from, to, value);
    }
}
