// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import "./Plain.sol";

/// Answers false where others revert: the receipt says success, there is no Transfer event, and nothing has moved.
/// With `always` it does so whatever the balance.
contract False is Plain {
    bool public always;

    constructor(uint256 supply, bool always_) Plain(supply) {
        always = always_;
    }

    function setAlways(bool always_) external {
        always = always_;
    }

    function transfer(address to, uint256 value) external override returns (bool) {
        if (always || balanceOf[msg.sender] < value) return false;
        move(msg.sender, to, value);
        return true;
    }

    function transferFrom(address from, address to, uint256 value) external override returns (bool) {
        if (always || balanceOf[from] < value || allowance[from][msg.sender] < value) return false;
        allowance[from][msg.sender] -= value;
        move(from, to, value);
        return true;
    }
}
