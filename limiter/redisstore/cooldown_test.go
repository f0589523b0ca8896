package redisstore_test

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

func paused() []limiter.Claim {
	return []limiter.Claim{{
		Limit: &limiter.Limit{
			Name: "sms.backoff", Rate: limiter.Rate{Count: 1, Window: time.Hour}, Algorithm: limiter.Cooldown,
			Steps: []time.Duration{time.Minute, 2 * time.Minute, 10 * time.Minute},
		},
		Key: limiter.KeyOf("+8613800138000"), Cost: 1,
	}}
}

// A clock that is set back makes nobody wait longer than the pause.
func TestCooldown_ClockSetBack(t *testing.T) {
	s := newClockedTestStore(t)
	c := paused()
	s.allowed(c, 1)
	s.advance(-20 * time.Second)
	s.denied(c, time.Minute)
	s.advance(30 * time.Second)
	s.denied(c, 30*time.Second) // the refusal before has moved the permit
	s.advance(30 * time.Second)
	s.allowed(c, 1)
	s.denied(c, 2*time.Minute)
}

// However many permits in a row, their string stays as small as that of 32.
func TestCooldown_StaysSmall(t *testing.T) {
	s := newClockedTestStore(t)
	c := paused()
	var size int64
	for i := range 100 {
		s.allowed(c, 1)
		if i == 35 {
			size = s.do("strlen", redisstore.BoxName(c[0])).(int64)
		}
		s.advance(10 * time.Minute)
	}
	if got := s.do("strlen", redisstore.BoxName(c[0])).(int64); got > size+8 {
		t.Errorf("%d bytes after 100 permits, %d after 36", got, size)
	}
	s.advance(50 * time.Minute)
	s.allowed(c, 1)
	s.denied(c, time.Minute)
	if got := s.do("strlen", redisstore.BoxName(c[0])).(int64); got > 40 {
		t.Errorf("%d bytes of one permit", got)
	}
}
