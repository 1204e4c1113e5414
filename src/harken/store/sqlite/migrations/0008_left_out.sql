-- What a consumer was not given when it began: received before its window, and more than it may begin with. All of it has
-- numbers up to the third. Null: the consumer began before this was counted.
ALTER TABLE cursors ADD COLUMN left_out_older INTEGER;
ALTER TABLE cursors ADD COLUMN left_out_surplus INTEGER;
ALTER TABLE cursors ADD COLUMN left_out_up_to INTEGER;
