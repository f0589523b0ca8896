package redisstore

import (
	"cmp"

	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// read is the reader goroutine of c. It answers the batches on c and, when c is lost, all
// that are in flight.
func (p *pipeline) read(c *wire.Conn) {
	in, answer := wire.NewReader(c), &wire.Reply{}
	var err error
	for err == nil {
		err = p.receive(c, in, answer)
	}
	c.Abort(err)
	err = c.ReadError(err)
	for i, b := range p.queue.removeAll(c) {
		if i == 0 { // the other batches are no further evidence
			p.circuit.record(err)
			p.store.reloadCluster()
		}
		for _, g := range b.groups {
			p.fail(g.calls, err)
		}
	}
	_ = c.Close()
}

// receive reads the replies to one batch and finishes its calls.
func (p *pipeline) receive(c *wire.Conn, in *wire.Reader, answer *wire.Reply) error {
	if err := in.Read(answer); err != nil {
		return err
	}
	b := p.queue.firstInFlight(c)
	if b == nil {
		return wire.ErrProtocol // reply without a request
	}
	if b.pong != nil {
		close(b.pong)
		return p.queue.removeFirst(c)
	}
	var failed, end error
	for i, g := range b.groups {
		if i > 0 {
			if err := in.Read(answer); err != nil {
				return err
			}
		}
		calls := g.calls
		g.calls = g.calls[:0] // a finished call belongs to its caller
		if answer.Err != nil {
			failed = cmp.Or(failed, answer.Err)
			if hasCode(answer.Err, "READONLY") {
				c.MarkStale() // it is not a master any more
			}
			if b.mustResend(answer.Err) {
				p.resend(g, calls)
				calls = nil
			}
		}
		p.queue.claim(calls)
		if i == len(b.groups)-1 {
			p.circuit.record(failed)
			end = p.queue.removeFirst(c)
		}
		b.finishCalls(calls, answer)
		clear(calls)
	}
	p.refundLate(b.late)
	p.queue.putBatch(b)
	return end
}
