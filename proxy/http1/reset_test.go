package http1

import (
	"net"
	"testing"

	"github.com/weir-proxy/weir/test/pooltest"
)

// A head that was reset differs from a new one by the memory of its fields alone.
func TestReset_ClearsEveryField(t *testing.T) {
	var q Request
	pooltest.Fill(t, &q)
	q.Reset()
	pooltest.Empty(t, &q)
	var r Response
	pooltest.Fill(t, &r)
	r.Reset()
	pooltest.Empty(t, &r)
}

// An exchange takes nothing from one client to another: it keeps empty buffers, a released call, and
// what belongs to the handler.
func TestReset_ExchangeOfAnotherClient(t *testing.T) {
	s := new(Server)
	c := &conn{server: s, x: new(Exchange)}
	x := c.x
	pooltest.Fill(t, x, net.Conn(new(net.TCPConn)), bodyFiller(new(Call)), flusher(x))
	x.in.headBuf = make([]byte, headBufferSize)
	x.out.buf = make([]byte, headBufferSize)
	x.call = nil
	c.releaseExchange()
	if c.x != nil {
		t.Error("the connection keeps its exchange")
	}
	if poisoned != (x.in.headBuf == nil) {
		t.Errorf("a buffer of %d bytes is kept", len(x.in.headBuf))
	}
	x.in.headBuf = nil // it is read into before it is read from
	pooltest.Empty(t, x, "Exchange.State")
}

// A call takes nothing from one request to another: it keeps an empty buffer, and the channel by which
// its next upload ends.
func TestReset_CallOfAnotherClient(t *testing.T) {
	client := new(Client)
	c := new(Call)
	pooltest.Fill(t, c, net.Conn(new(net.TCPConn)), bodyFiller(new(Call)), flusher(new(Exchange)))
	c.client, c.x, c.conn, c.upload.running = client, nil, nil, false
	c.out.buf = make([]byte, headBufferSize)
	c.Release()
	pooltest.Empty(t, c, "Call.upload.done")
}
