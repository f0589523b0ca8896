package redisstore

import (
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// What was about to be sent when the connection was lost goes by the next one.
func TestPipeline_KeepsWhatWasNotSent(t *testing.T) {
	s := grounded(t)
	p := s.only(t)
	lost, err := p.connection()
	if err != nil {
		t.Fatal(err)
	}
	lost.Abort(net.ErrClosed)
	eventually(t, "the reader ends", lost.IsUnusable)
	calls := []*call{}
	for range 3 {
		calls = append(calls, s.newCall([]limiter.Claim{{Limit: bucketOf("l", 5), Cost: 1}}, newID()))
	}
	s.join(t, calls...)
	p.send(lost)
	if n := s.fly(t); n != 1 {
		t.Errorf("%d batches, want 1", n)
	}
	for i, c := range calls {
		<-c.done
		if c.err != nil || c.decision.Outcomes[0].Remaining != int64(4-i) {
			t.Errorf("call %d: %+v, %v", i, c.decision, c.err)
		}
	}
}

// Whoever answers calls, in whatever order, each is answered once, and the queue knows
// those that nobody has answered, oldest first.
func TestQueue_KnowsWhoIsNotAnswered(t *testing.T) {
	q := &queue{timeout: time.Hour, startWriter: func() {}, sweepTimer: time.NewTimer(time.Hour)}
	q.writerWake.L = &q.mu
	rng := rand.New(rand.NewPCG(1, 2))
	left := errors.New("left")
	var open, taken []*call
	for range 5000 {
		switch rng.IntN(5) {
		case 0, 1:
			c := &call{claims: make([]limiter.Claim, 1+rng.IntN(3)), done: make(chan struct{}, 1), deadline: time.Now().Add(time.Minute)}
			if err := q.enqueue(c); err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		case 2:
			taken = q.dequeue(taken)
		case 3:
			if len(open) == 0 {
				continue
			}
			i := rng.IntN(len(open))
			if err := q.abandon(open[i], left); !errors.Is(err, left) {
				t.Fatal(err)
			}
			open = slices.Delete(open, i, i+1)
		case 4:
			n := rng.IntN(len(taken) + 1)
			q.claim(taken[:n])
			for _, c := range taken[:n] {
				if (c.state == callAnswered) != slices.Contains(open, c) {
					t.Fatalf("a call in state %d, of which somebody waits for %v", c.state, slices.Contains(open, c))
				}
			}
			open = slices.DeleteFunc(open, func(c *call) bool { return c.state == callAnswered })
			if taken = taken[n:]; rng.IntN(2) == 0 {
				q.requeue(taken)
				taken = nil
			}
		}
		var known []*call
		for c := q.oldest; c != nil; c = c.next {
			known = append(known, c)
		}
		if !slices.Equal(known, open) {
			t.Fatalf("%d calls are known, of %d", len(known), len(open))
		}
	}
	late, _, _ := q.expire(time.Now().Add(2 * time.Minute))
	if !slices.Equal(late, open) || q.oldest != nil || q.newest != nil {
		t.Errorf("%d of %d calls are late", len(late), len(open))
	}
}
