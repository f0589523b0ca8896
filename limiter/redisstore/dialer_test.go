package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// hanging is a store whose only call so far has timed out, and whose attempt to connect
// goes on: to a speaker that hangs until hold is closed.
func hanging(t *testing.T, dial time.Duration) (s *speaker, store *Store, hold chan struct{}) {
	t.Helper()
	const timeout = time.Second
	s, hold = newSpeaker(t, func(int, int) string { return granted }), make(chan struct{})
	s.hang(hold)
	client := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialTimeout: timeout + dial, ReadTimeout: timeout})
	store = New(client, Options{Timeout: timeout, Denials: -1})
	t.Cleanup(func() { store.Close(); client.Close() })
	var d limiter.Decision
	if err := store.Take(t.Context(), five(), &d); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("while Redis hangs: %v", err)
	}
	q := &store.only(t).queue
	eventually(t, "the writer has given up, too", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return !q.hasWriter
	})
	return s, store, hold
}

// late waits until the attempt that outlasted its call has ended, and returns its result.
func (s *Store) late(t *testing.T) (made dialResult) {
	t.Helper()
	p := s.only(t)
	eventually(t, "the attempt has ended", func() bool {
		p.writeMu.Lock()
		defer p.writeMu.Unlock()
		if len(p.dialer.pending) == 0 {
			return false
		}
		made = <-p.dialer.pending
		p.dialer.pending <- made
		return true
	})
	return made
}

// An attempt to connect that began for an earlier call and fails is not the answer to a
// later one, as Redis may be back since then: that one makes an attempt of its own.
func TestDialer_StaleFailureIsNobodysAnswer(t *testing.T) {
	for when, failed := range map[string]bool{"has failed": true, "is failing": false} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s, store, hold := hanging(t, time.Second/5)
			defer close(hold)
			s.hang(nil)
			if failed {
				if made := store.late(t); made.err == nil {
					t.Fatal("the attempt has not failed")
				}
			}
			must(t, store)
		})
	}
}

// A connection that is opened too late for its call serves the next one, unless it was
// closed meanwhile.
func TestDialer_LateConnection(t *testing.T) {
	for state, conns := range map[string]int{"open": 1, "closed": 2} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s, store, hold := hanging(t, patient)
			close(hold)
			made := store.late(t)
			if made.err != nil {
				t.Fatal(made.err)
			}
			if state == "closed" {
				s.cut()
				eventually(t, "that is noticed", made.conn.isUnusable)
			}
			must(t, store)
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.conns) != conns {
				t.Errorf("%d connections, want %d", len(s.conns), conns)
			}
		})
	}
}
