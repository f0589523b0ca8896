package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// standing inspects one claim.
func (s *testStore) standing(c limiter.Claim) limiter.KeyStatus {
	s.t.Helper()
	in, err := s.store.Inspect(s.t.Context(), []limiter.Claim{c})
	if err != nil || len(in.Statuses) != 1 {
		s.t.Fatalf("inspect: %+v, %v", in, err)
	}
	return in.Statuses[0]
}

// A limiter that Java programs share stands as their config says, in each form; other
// claims may be asked about in the same call.
func TestInspect_SharedWithJava(t *testing.T) {
	s := newClockedTestStore(t)
	for _, form := range []limiter.RedissonFormat{limiter.RedissonByte, limiter.RedissonFloat, limiter.RedissonWindow} {
		c := claim(9, time.Hour, 1)[0]
		c.RedissonName, c.RedissonFormat = "java:"+form.String(), form
		if got := s.standing(c); got.Used != 0 || got.Remaining != 9 || got.Rate != c.Limit.Rate {
			t.Errorf("%s: %+v before anything was taken", form, got)
		}
		s.do("hset", c.RedissonName, "rate", "3", "interval", "60000", "type", "0")
		s.allowed([]limiter.Claim{c}, 1)
		s.advance(10 * time.Second)
		s.allowed([]limiter.Claim{c}, 1)
		s.advance(time.Second)
		want := limiter.KeyStatus{
			Rate: limiter.Rate{Count: 3, Window: time.Minute}, Capacity: 3, Used: 2, Remaining: 1,
			NextIn: 49 * time.Second, FullIn: 59 * time.Second,
		}
		got := s.standing(c)
		if form == limiter.RedissonWindow { // which goes by the time to live that Redis keeps
			want.NextIn, want.FullIn = got.NextIn, got.NextIn
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", form, got, want)
		}
		other := claim(5, time.Hour, 1)[0]
		other.Limit.Name = "beside:" + form.String()
		s.allowed([]limiter.Claim{other}, 2)
		in, err := s.store.Inspect(t.Context(), []limiter.Claim{other, c})
		if err != nil || in.Statuses[0].Used != 2 || in.Statuses[1].Used != 2 {
			t.Errorf("%+v, %v; want both", in, err)
		}
	}
}

// What others have left in a key is told of, and keeps nothing else from being shown.
func TestInspect_WhatNobodyCanRead(t *testing.T) {
	s := newTestStore(t)
	packed, plain, good, java := claim(5, time.Hour, 1)[0], claim(5, time.Hour, 1)[0], claim(5, time.Hour, 1)[0], claim(5, time.Hour, 1)[0]
	packed.Limit.Name, packed.Limit.Algorithm = "packed:w", limiter.SlidingLog
	good.Limit.Name, java.Limit.Name, java.RedissonName = "good:w", "java:w", "java"
	s.do("rpush", redisstore.BoxName(packed), "no string")
	s.do("rpush", name([]limiter.Claim{plain})+":value", "no string")
	s.do("rpush", "{java}:value", "no string")
	s.allowed([]limiter.Claim{good}, 1)
	all := []limiter.Claim{packed, plain, good, java}
	in, err := s.store.Inspect(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false, true} {
		if got := in.Statuses[i]; got.Unreadable != want || want && got.Used != 0 {
			t.Errorf("%s: %+v, want unreadable %v", all[i].Limit.Name, got, want)
		}
	}
	if in.Statuses[2].Used != 1 {
		t.Errorf("%+v, want the one that was taken", in.Statuses[2])
	}
	if err := s.store.Reset(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if got := s.standing(c); got.Unreadable || got.Remaining != 5 {
			t.Errorf("%s: %+v after a reset", c.Limit.Name, got)
		}
	}
}

func TestInspect_WithoutRedis(t *testing.T) {
	s := newTestStore(t)
	s.server.Kill()
	if in, err := s.store.Inspect(t.Context(), claim(5, time.Hour, 1)); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("%+v, %v; want ErrUnavailable", in, err)
	}
}
