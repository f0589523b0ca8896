package redisstore

import (
	"cmp"

	"github.com/redis/go-redis/v9"
)

// read is the reader of c: it answers the batches on it, and when c is lost all that
// were in progress.
func (p *pipeline) read(c *conn) {
	in, answer := newRESPReader(c), &reply{}
	var err error
	for err == nil {
		err = p.receive(c, in, answer)
	}
	c.abort(err)
	err = c.readError(err)
	for i, b := range p.queue.removeAll(c) {
		if i == 0 { // the others say nothing more about Redis
			p.circuit.record(err)
			p.store.reloadCluster()
		}
		for _, g := range b.groups {
			p.fail(g.calls, err)
		}
	}
	c.close()
}

// receive answers one batch.
func (p *pipeline) receive(c *conn, in *respReader, answer *reply) error {
	if err := in.read(answer); err != nil {
		return err
	}
	b := p.queue.firstInFlight()
	if b == nil {
		return errProtocol // nobody has asked
	}
	var failed error
	for i, g := range b.groups {
		if i > 0 {
			if err := in.read(answer); err != nil {
				return err
			}
		}
		calls := g.calls
		g.calls = g.calls[:0] // they are the callers' again, once told
		if answer.err != nil {
			failed = cmp.Or(failed, answer.err)
			if redis.HasErrorPrefix(answer.err, "READONLY") {
				c.isStale.Store(true) // it is a master no more
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
