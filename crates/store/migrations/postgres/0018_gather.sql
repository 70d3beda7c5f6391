-- Bitcoin's payouts gather in one transaction (docs/adr/0014-outbound.md). NULL: as usual (domain::outbound::OutboundLimits).
ALTER TABLE chains ADD COLUMN gather_s BIGINT;
ALTER TABLE chains ADD COLUMN gather_most BIGINT;
ALTER TABLE chains ADD COLUMN join_below BIGINT;
