package redisstore

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

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
			ask(io.EOF)
		}
		ask(nil) // in a row means in a row
		for range 3 {
			if err := ask(io.EOF); !errors.Is(err, io.EOF) {
				t.Fatalf("closed: %v", err)
			}
		}
		asked = 0
		if err := ask(nil); !errors.Is(err, ErrOpen) || !errors.Is(err, io.EOF) || asked != 0 {
			t.Fatalf("open: %v, asked %d times", err, asked)
		}
		synctest.Wait()
		time.Sleep(2*time.Second - 1)
		if err := ask(nil); !errors.Is(err, ErrOpen) {
			t.Fatalf("still resting: %v", err)
		}
		time.Sleep(2 * time.Nanosecond)
		if err := ask(io.EOF); !errors.Is(err, io.EOF) || asked != 1 {
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

func TestBreaker_KnowsSickReplies(t *testing.T) {
	for err, want := range map[error]bool{
		nil:                                   true,
		redis.Nil:                             true,
		replyError("ERR syntax error"):        true,
		replyError("NOSCRIPT No matching"):    true,
		replyError("WRONGTYPE Operation"):     true,
		replyError("MOVED 1 127.0.0.1:1"):     true,
		replyError("LOADING Redis is"):        false,
		replyError("READONLY You can't"):      false,
		replyError("CLUSTERDOWN the cluster"): false,
		replyError("MASTERDOWN Link"):         false,
		replyError("OOM command not"):         false,
		io.EOF:                                false,
		context.DeadlineExceeded:              false,
	} {
		if got := healthy(err); got != want {
			t.Errorf("%v: healthy %v, want %v", err, got, want)
		}
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
