-- Whether the host of an approval passes the reason of a refusal on to its model.
ALTER TABLE approvals ADD COLUMN carries_reason BIGINT NOT NULL DEFAULT 1;
