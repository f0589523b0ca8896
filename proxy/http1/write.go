package http1

import (
	"sync/atomic"

	"github.com/weir-proxy/weir/proxy/http1/internal/socket"
)

// A writeGuard panics if two goroutines write to a connection at the same time. The locks
// of package net do not prevent that: readFirst and reuseAttempt write while they hold
// the one for reading. Without the build tag poison it does nothing.
type writeGuard struct{ writing atomic.Bool }

func (g *writeGuard) begin() {
	if poisoned && g.writing.Swap(true) {
		panic("http1: two goroutines write to a connection")
	}
}

func (g *writeGuard) end() {
	if poisoned {
		g.writing.Store(false)
	}
}

// write writes p to the client. On a plain socket it writes by itself, because that costs
// less than net.Conn.Write.
func (c *conn) write(p []byte) error {
	c.writeGuard.begin()
	defer c.writeGuard.end()
	if c.rawConn == nil {
		_, err := c.net.Write(p)
		return err
	}
	c.writeOp = socket.WriteOp{Data: p}
	err := c.rawConn.Write(c.writeStep) // the method value is made once; making it here would allocate
	c.writeOp.Data = nil
	if err == nil && c.writeOp.Err != nil {
		return socket.Error(c.net, "write", c.writeOp.Err)
	}
	return socket.TrimRaw(err)
}
