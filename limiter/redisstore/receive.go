package redisstore

import (
	"cmp"

	"github.com/redis/go-redis/v9"
)

// read is the reader goroutine of c. It answers the batches on c and, when c is lost, all
// that are in flight.
func (p *pipeline) read(c *conn) {
	in, answer := newRESPReader(c), &reply{}
	var err error
	for err == nil {
		err = p.receive(c, in, answer)
	}
	c.abort(err)
	err = c.readError(err)
	for i, b := range p.queue.removeAll(c) {
		if i == 0 { // the other batches are no further evidence
			p.circuit.record(err)
			p.store.reloadCluster()
		}
		for _, g := range b.groups {
			p.fail(g.calls, err)
		}
	}
	c.close()
}

// receive reads the replies to one batch and finishes its calls.
func (p *pipeline) receive(c *conn, in *respReader, answer *reply) error {
	if err := in.read(answer); err != nil {
		return err
	}
	b := p.queue.firstInFlight()
	if b == nil {
		return errProtocol // reply without a request
	}
	var failed error
	for i, g := range b.groups {
		if i > 0 {
			if err := in.read(answer); err != nil {
				return err
			}
		}
		calls := g.calls
		g.calls = g.calls[:0] // a finished call belongs to its caller
		if answer.err != nil {
			failed = cmp.Or(failed, answer.err)
			if redis.HasErrorPrefix(answer.err, "READONLY") {
				c.isStale.Store(true) // it is not a master any more
			}
			if b.mustResend(answer.err) {
				p.resend(g, calls)
				calls = nil
			}
		}
		p.queue.claim(calls)
		if i == len(b.groups)-1 {
			p.circuit.record(failed)
			p.queue.removeFirst()
		}
		b.finishCalls(calls, answer)
		clear(calls)
	}
	p.queue.putBatch(b)
	return nil
}
