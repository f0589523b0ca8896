//go:build java

package redisson

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/await"
)

// Entries are written as those that are there, whatever version was named, so that Java
// reads them; a limiter that has entries of two forms is refused, and nothing is written.
func TestRate_EntriesAreWrittenAsJavasAre(t *testing.T) {
	if form(t) == limiter.RedissonWindow {
		return // it has no entries
	}
	l := newLimited(t, 0)
	l.do("true", "ann", "rate.set", "found", 10, time.Hour.Milliseconds(), 0)
	l.do("true", "ann", "rate.take", "found", 2)
	r := l.limiter(t, "found").WithFormat(limiter.RedissonByte)
	if o, err := r.Allow(brief(t), 3); err != nil || !o.Allowed || o.Remaining != 5 {
		t.Fatalf("Allow(3) = %+v, %v; want it granted and 5 left of 10", o, err)
	}
	l.do("5", "ann", "rate.left", "found")
	l.do("true", "ann", "rate.take", "found", 4)
	l.do("false", "ann", "rate.take", "found", 2)
	if o, err := r.Allow(brief(t), 2); err != nil || o.Allowed || o.Wait < 50*time.Minute {
		t.Fatalf("Allow(2) = %+v, %v; want a refusal for almost an hour", o, err)
	}
	other := "\x08an-id-of\x01\x00\x00\x00" // of 3.17 and later
	if form(t) == limiter.RedissonByte {
		other = "\x01\x02\x03\x04\x01\x00\x00\x00" // up to 3.16.3
	}
	if err := l.eye.ZAdd(brief(t), "{found}:permits", redis.Z{Score: float64(time.Now().UnixMilli()), Member: other}).Err(); err != nil {
		t.Fatal(err)
	}
	before := l.eye.Dump(brief(t), "{found}:permits").Val()
	if o, err := r.Available(brief(t)); !errors.Is(err, redisstore.ErrRedisson) {
		t.Errorf("Available beside entries of two forms = %v, %v; want ErrRedisson", o, err)
	}
	if o, err := r.Allow(brief(t), 1); !errors.Is(err, redisstore.ErrRedisson) {
		t.Errorf("Allow beside entries of two forms = %+v, %v; want ErrRedisson", o, err)
	}
	if l.eye.Dump(brief(t), "{found}:permits").Val() != before {
		t.Error("the entries have changed")
	}
}

// What a request wrote of a limiter that Java has not set ends with its permits, and then
// Java sets it as it likes.
func TestRate_WhatARequestSetEndsWithItsPermits(t *testing.T) {
	l := newLimited(t, 0)
	var d limiter.Decision
	claims := []limiter.Claim{{
		Limit: &limiter.Limit{Name: "sms.lent", Rate: limiter.Rate{Count: 5, Window: 2 * time.Second}},
		Cost:  1, RedissonName: "lent", RedissonFormat: form(t),
	}}
	if err := l.store.Take(brief(t), claims, &d); err != nil || !d.Allowed {
		t.Fatalf("Take = %+v, %v", d, err)
	}
	await.Until(t, "nothing is left of it", func() bool { return len(l.eye.Keys(t.Context(), "*lent*").Val()) == 0 })
	l.do("true", "ann", "rate.set", "lent", 3, time.Hour.Milliseconds(), 0)
	for _, allowed := range []bool{true, true, true, false} {
		if err := l.store.Take(brief(t), claims, &d); err != nil || d.Allowed != allowed {
			t.Fatalf("Take = %+v, %v; want %v, by what Java set", d, err, allowed)
		}
	}
	l.do("false", "ann", "rate.take", "lent", 1)
}
