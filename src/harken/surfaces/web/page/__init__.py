"""The page: what people see in the browser, rendered here. Asks the inbox and its views; knows no store."""
