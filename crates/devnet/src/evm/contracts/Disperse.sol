// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// Pays many addresses in one transaction: transfers of coin that only a trace shows.
contract Disperse {
    function disperse(address payable[] calldata to, uint256[] calldata value) external payable {
        uint256 left = msg.value;
        for (uint256 i = 0; i < to.length; i++) {
            left -= value[i];
            pay(to[i], value[i]);
        }
        if (left > 0) pay(payable(msg.sender), left);
    }

    /// Pays `kept`; and pays `undone` inside a call that reverts and is caught. The transaction succeeds, its trace has
    /// both payments, and only one has happened: whoever does not look at the failed frame above credits the other.
    function pretend(address payable kept, address payable undone, uint256 value) external payable {
        pay(kept, value);
        try this.payAndRevert{value: value}(undone) {
            revert("it must not succeed");
        } catch {}
        uint256 left = address(this).balance;
        if (left > 0) pay(payable(msg.sender), left);
    }

    function payAndRevert(address payable to) external payable {
        pay(to, msg.value);
        revert("undone");
    }

    function pay(address payable to, uint256 value) private {
        (bool paid, ) = to.call{value: value}("");
        require(paid, "payment failed");
    }
}
