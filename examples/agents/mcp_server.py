"""An MCP server with the tools of a simulated company's bookkeeping. Any server that an editor can start will do."""

import bookkeeping
from mcp.server.mcpserver import MCPServer

server = MCPServer("bookkeeping")
for tool in (bookkeeping.accounts_of, bookkeeping.ledger_entries, bookkeeping.exchange_rate, bookkeeping.add):
    server.add_tool(tool, structured_output=False)
server.run()
