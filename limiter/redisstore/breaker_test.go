package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// errAway is what dialling a Redis that is not there says.
var errAway error = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (replyError) RedisError() {}

// After N failures in a row nobody asks, until the rest is over; then one asks,
// and everybody goes by its answer.
func TestBreaker_OpensRestsAndTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(3, 2*time.Second)
		var reply error
		asked := 0
		call := b.ProcessHook(func(context.Context, redis.Cmder) error { asked++; return reply })
		ask := func(with error) error {
			reply = with
			return call(t.Context(), redis.NewCmd(t.Context(), "ping"))
		}
		for range 2 {
			ask(errAway)
		}
		ask(nil) // in a row means in a row
		for range 3 {
			if err := ask(errAway); !errors.Is(err, errAway) {
				t.Fatalf("closed: %v", err)
			}
		}
		asked = 0
		if err := ask(nil); !errors.Is(err, ErrOpen) || !errors.Is(err, errAway) || asked != 0 {
			t.Fatalf("open: %v, asked %d times", err, asked)
		}
		synctest.Wait()
		time.Sleep(2*time.Second - 1)
		if err := ask(nil); !errors.Is(err, ErrOpen) {
			t.Fatalf("still resting: %v", err)
		}
		time.Sleep(2 * time.Nanosecond)
		if err := ask(errAway); !errors.Is(err, errAway) || asked != 1 {
			t.Fatalf("the try: %v, asked %d times", err, asked)
		}
		if err := ask(nil); !errors.Is(err, ErrOpen) {
			t.Fatalf("after a bad try: %v", err)
		}
		time.Sleep(2 * time.Second)
		ask(context.Canceled) // says nothing, but the try is over
		time.Sleep(2 * time.Second)
		if err := ask(nil); err != nil {
			t.Fatalf("a good try: %v", err)
		}
		for range 10 {
			if err := ask(nil); err != nil {
				t.Fatalf("closed again: %v", err)
			}
		}
	})
}

// A Redis that is away does not answer, or cannot be dialled. One that says to try
// again is there, and what lies between cuts connections.
func TestBreaker_KnowsWhoIsAway(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for err, want := range map[error]evidence{
		nil:                                             evidenceUp,
		redis.Nil:                                       evidenceUp,
		replyError("ERR syntax error"):                  evidenceUp,
		replyError("NOSCRIPT No matching"):              evidenceUp,
		replyError("WRONGTYPE Operation"):               evidenceUp,
		replyError("UNSHARED rl: rate is 0"):            evidenceUp,
		replyError("MOVED 1 127.0.0.1:1"):               evidenceUp,
		replyError("LOADING Redis is"):                  evidenceBusy,
		replyError("BUSY Redis is busy"):                evidenceBusy,
		replyError("READONLY You can't"):                evidenceBusy,
		replyError("CLUSTERDOWN the cluster"):           evidenceBusy,
		replyError("MASTERDOWN Link"):                   evidenceBusy,
		replyError("ERR max number of clients reached"): evidenceBusy,
		replyError("OOM command not"):                   evidenceDown,
		replyError("MISCONF Redis is"):                  evidenceDown,
		replyError("NOREPLICAS Not enough"):             evidenceDown,
		// Redis before 7 says so of a command of a script.
		replyError("ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -OOM command not"):    evidenceDown,
		replyError("ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -READONLY You can't"): evidenceBusy,
		replyError("ERR Error running script (call to f_1): @user_script:3: of a text - OOM"):                      evidenceUp,
		io.EOF: evidenceBusy,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}: evidenceBusy,
		&net.OpError{Op: "write", Err: syscall.EPIPE}:     evidenceBusy,
		refused:                  evidenceDown,
		context.DeadlineExceeded: evidenceDown,
		os.ErrDeadlineExceeded:   evidenceDown,
		redis.ErrPoolTimeout:     evidenceDown,
		context.Canceled:         evidenceNone,
	} {
		if got := evidenceOf(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// However many connections are cut, and however often Redis says to try again, it
// is asked; unless it has said nothing else for as long as it would rest.
func TestBreaker_IsPatientWithWhoSaysTryAgain(t *testing.T) {
	for _, reply := range []error{io.EOF, replyError("LOADING Redis is loading"), replyError("READONLY no")} {
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(3, 2*time.Second)
			with := reply
			call := b.ProcessHook(func(context.Context, redis.Cmder) error { return with })
			ask := func() error { return call(t.Context(), redis.NewCmd(t.Context(), "ping")) }
			for range 100 {
				if err := ask(); errors.Is(err, ErrOpen) {
					t.Fatalf("%v: opened at once", reply)
				}
			}
			time.Sleep(2 * time.Second)
			with = nil
			ask()
			with = reply
			for range 100 {
				if err := ask(); errors.Is(err, ErrOpen) {
					t.Fatalf("%v: opened, though it worked in between", reply)
				}
			}
			time.Sleep(2 * time.Second)
			for range 3 {
				ask()
			}
			if err := ask(); !errors.Is(err, ErrOpen) || !errors.Is(err, reply) {
				t.Errorf("%v after 2s of nothing else: %v", reply, err)
			}
		})
	}
}

// What happens to limiters that are shared with Redisson says nothing of others, and
// the other way round.
func TestBreaker_KeepsSharedLimitersApart(t *testing.T) {
	b := newBreaker(3, time.Minute)
	late := b.ProcessHook(func(context.Context, redis.Cmder) error { return context.DeadlineExceeded })
	well := b.ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	cmd := redis.NewCmd(t.Context(), "ping")
	for range 3 {
		late(withRedissonCall(t.Context()), cmd)
	}
	if err := well(t.Context(), cmd); err != nil {
		t.Errorf("others: %v", err)
	}
	if err := well(withRedissonCall(t.Context()), cmd); !errors.Is(err, ErrOpen) || !errors.Is(err, errRedissonOpen) {
		t.Errorf("shared ones: %v", err)
	}
}

// Who left while waiting says nothing about Redis.
func TestBreaker_IgnoresCallersThatLeft(t *testing.T) {
	b := newBreaker(1, time.Minute)
	call := b.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return context.Canceled })
	for range 5 {
		if err := call(t.Context(), nil); errors.Is(err, ErrOpen) {
			t.Fatal("opened")
		}
	}
}

// The client of sentinels says which master it has found last.
func TestBreaker_NotesTheMaster(t *testing.T) {
	s := newSpeaker(t, nil)
	b := newBreaker(1, time.Minute)
	b.masters = &wire.Masters{}
	if !b.masters.IsCurrent("anywhere") {
		t.Error("without a master that is known, another one is")
	}
	dial := b.DialHook(func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", s.addr) })
	c, err := dial(t.Context(), "tcp", "the name of the master")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b.masters.IsCurrent("10.1.2.3:6379") || !b.masters.IsCurrent(s.addr) {
		t.Errorf("after a connection to %s that is not the master", s.addr)
	}
}
