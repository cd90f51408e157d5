// A legacy server for tests/package: its one tool is named by code that the just-in-time compiler has seen.
const fs = require("fs");
const readline = require("readline");

fs.writeFileSync(`${process.env.HOME}/was-here`, "");
try {
	fs.writeFileSync("/usr/local/lib/was-here", "");
} catch {
	// as it should be
}

let sum = 0;
for (let i = 0; i < 3e6; i++)
	sum = (sum + i * i) % 65521;
const name = new WebAssembly.Memory({ initial: 1 }) && sum ? "compiled" : "idle";

readline.createInterface({ input: process.stdin }).on("line", (line) => {
	const { id, method } = JSON.parse(line);
	const results = {
		initialize: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "test", version: "1" } },
		"tools/list": { tools: [{ name, inputSchema: { type: "object" } }] },
	};
	if (id !== undefined)
		console.log(JSON.stringify({ jsonrpc: "2.0", id, result: results[method] ?? {} }));
});
