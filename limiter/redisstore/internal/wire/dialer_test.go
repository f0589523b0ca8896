package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// newDialer returns a Dialer whose connections are made by dial, and what stops it.
// An attempt takes at most 1.2 s.
func newDialer(dial func(context.Context) (net.Conn, error)) (d *Dialer, stop func()) {
	node := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", DialTimeout: 1200 * time.Millisecond, DisableIdentity: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	})
	read := func(c *Conn) {
		_, _ = io.Copy(io.Discard, c)
		c.MarkEnded()
		_ = c.Close()
	}
	d = &Dialer{Node: node, Read: read}
	return d, func() {
		d.Stop()
		node.Close()
		time.Sleep(2 * time.Second) // a client that looks for its server ends after Close
	}
}

// answering is a connection to a server that knows no HELLO, and answers OK to all else.
func answering() net.Conn {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		in, answer, p := NewReader(far), "-ERR unknown command\r\n", &Reply{}
		for in.Read(p) == nil {
			if _, err := io.WriteString(far, answer); err != nil {
				return
			}
			answer = "+OK\r\n"
		}
	}()
	return near
}

// dialed is what Dial returns, which must not be an error.
func dialed(t *testing.T, d *Dialer) *Conn {
	t.Helper()
	c, err := d.Dial(time.Second)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	return c
}

// An attempt to connect that began for an earlier call and fails is not the result of a
// later one, as Redis may be back since then: that one makes an attempt of its own.
func TestDialer_StaleFailureIsNobodysResult(t *testing.T) {
	for when, wait := range map[string]time.Duration{"has failed": time.Second, "is failing": 0} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hangs atomic.Bool
				hangs.Store(true)
				d, stop := newDialer(func(ctx context.Context) (net.Conn, error) {
					if hangs.Load() {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return answering(), nil
				})
				if _, err := d.Dial(time.Second); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("while Redis hangs: %v", err)
				}
				hangs.Store(false)
				time.Sleep(wait)
				dialed(t, d).Abort(net.ErrClosed)
				stop()
			})
		})
	}
}

// A connection that is opened too late for its call serves the next one, unless it was
// closed meanwhile.
func TestDialer_LateConnection(t *testing.T) {
	for state, want := range map[string]bool{"open": true, "closed": false} {
		t.Run(state, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				late := answering()
				var dials atomic.Int64
				d, stop := newDialer(func(context.Context) (net.Conn, error) {
					if dials.Add(1) > 1 {
						return answering(), nil
					}
					time.Sleep(time.Second + time.Millisecond)
					return late, nil
				})
				if _, err := d.Dial(time.Second); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("while Redis hangs: %v", err)
				}
				time.Sleep(time.Second)
				if state == "closed" {
					late.Close()
					synctest.Wait()
				}
				c := dialed(t, d)
				if isLate := c.Conn == late; isLate != want {
					t.Errorf("the late connection: %v, want %v", isLate, want)
				}
				c.Abort(net.ErrClosed)
				stop()
			})
		})
	}
}

// Attempts that fail are made ever more seldom, as where there is no breaker nothing
// else keeps callers from trying. A success forgets them.
func TestDialer_Pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusing := errors.New("connection refused")
		var answers atomic.Bool
		d, stop := newDialer(func(context.Context) (net.Conn, error) {
			if answers.Load() {
				return answering(), nil
			}
			return nil, refusing
		})
		pause := time.Duration(0)
		for i := range 10 {
			begun := time.Now()
			if _, err := d.Dial(time.Second); !errors.Is(err, refusing) {
				t.Fatalf("attempt %d: %v", i, err)
			}
			if got := time.Since(begun); got != pause {
				t.Errorf("attempt %d after %v, want %v", i, got, pause)
			}
			pause = min(max(2*pause, minBackoff), maxBackoff)
		}
		answers.Store(true)
		dialed(t, d).Abort(net.ErrClosed)
		if d.pause != 0 {
			t.Errorf("%v of pause after a success", d.pause)
		}
		stop()
	})
}

// Stop does not wait for a node that does not reply: it ends the attempt.
func TestDialer_StopEndsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, stop := newDialer(func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done() // the client's own, which ends after DialTimeout
			return nil, ctx.Err()
		})
		if _, err := d.Dial(time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		begun := time.Now()
		if d.Stop(); time.Since(begun) != 0 {
			t.Errorf("stopped after %v", time.Since(begun))
		}
		stop()
	})
}
