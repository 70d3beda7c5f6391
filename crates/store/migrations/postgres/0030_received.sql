-- Withdrawals that were settled inside, for whoever got the money. The other engine's folder has a file of the same name.
CREATE INDEX idx_withdrawal_requests_received ON withdrawal_requests (payee_id, id) WHERE payee_id IS NOT NULL;
