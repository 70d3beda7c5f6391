// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import "./Plain.sol";

/// Keeps 1 % of every transfer for its collector: two Transfer events, and the recipient's has less than was sent. Who
/// believes the call data instead of the event credits too much.
contract Taxed is Plain {
    address public collector;

    constructor(uint256 supply, address collector_) Plain(supply) {
        collector = collector_;
    }

    function move(address from, address to, uint256 value) internal override {
        uint256 tax = value / 100;
        super.move(from, collector, tax);
        super.move(from, to, value - tax);
    }
}
