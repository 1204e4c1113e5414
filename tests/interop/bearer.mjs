// Gives every request of a program that knows no tokens the one in the environment. For node's `--import`.
import channel from "node:diagnostics_channel";

const authorization = `Bearer ${process.env.HARKEN_TOKEN}`;

channel.subscribe("undici:request:create", ({ request }) => request.addHeader("authorization", authorization));
channel.subscribe("http.client.request.created", ({ request }) => request.setHeader("authorization", authorization));
