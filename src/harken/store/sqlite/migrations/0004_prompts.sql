-- What goes with prompts is looked for at every prompt of every agent, however much else a mailbox holds. A message's
-- place follows from the row number that every index ends with.
CREATE INDEX messages_for_prompts ON messages (mailbox) WHERE attention = 'prompt';
