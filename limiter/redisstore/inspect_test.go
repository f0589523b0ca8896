package redisstore_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/sockettest"
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
			Rate: limiter.Rate{Count: 3, Window: time.Minute}, Capacity: 3, Allowed: 3, Used: 2, Remaining: 1,
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
	s.check(s.store.Reset(t.Context(), all))
	for _, c := range all {
		if got := s.standing(c); got.Unreadable || got.Remaining != 5 {
			t.Errorf("%s: %+v after a reset", c.Limit.Name, got)
		}
	}
}

// singleAndCluster start a Redis, or a cluster of one, and return how to reach it and to signal it.
func singleAndCluster(t *testing.T) map[string]func() (redisstore.ClientConfig, func(syscall.Signal)) {
	return map[string]func() (redisstore.ClientConfig, func(syscall.Signal)){
		"single": func() (redisstore.ClientConfig, func(syscall.Signal)) {
			server := redistest.Start(t)
			return redisstore.ClientConfig{Addrs: []string{server.Addr}}, server.Signal
		},
		"cluster": func() (redisstore.ClientConfig, func(syscall.Signal)) {
			cluster := redistest.StartMasters(t, 1)
			return redisstore.ClientConfig{Mode: redisstore.Cluster, Addrs: cluster.Addrs()}, cluster.Signal
		},
	}
}

// An operator's question may take longer than a decision: a Redis or a machine that is slow
// for a moment is no outage.
func TestInspect_IsPatient(t *testing.T) {
	t.Parallel()
	for mode, begin := range singleAndCluster(t) {
		c, signal := begin()
		c.Timeout = 50 * time.Millisecond
		store := storeOn(t, clientOf(t, c), redisstore.Options{Timeout: c.Timeout, CachedRefusals: -1})
		s := &testStore{t: t, store: store}
		eventually(t, "a connection stands", func() bool {
			_, err := store.Inspect(t.Context(), claim(9, time.Hour, 1))
			return err == nil
		})
		goneOn := standStill(signal, 5*c.Timeout)
		if got := s.standing(claim(9, time.Hour, 1)[0]); got.Remaining != 9 {
			t.Errorf("%s: %+v", mode, got)
		}
		<-goneOn
	}
}

// The first question opens a connection, which may be slow too.
func TestInspect_FirstQuestionIsPatient(t *testing.T) {
	server := redistest.Start(t)
	store := impatientStore(t, server.Addr)
	goneOn := standStill(server.Signal, 300*time.Millisecond)
	if in, err := store.Inspect(t.Context(), claim(9, time.Hour, 1)); err != nil || in.Statuses[0].Remaining != 9 {
		t.Errorf("%+v %v", in, err)
	}
	<-goneOn
}

// standStill stops servers for a time. They may end once the channel is closed: the first
// of them answers while the others are still to go on.
func standStill(signal func(syscall.Signal), lasts time.Duration) <-chan struct{} {
	signal(syscall.SIGSTOP)
	goneOn := make(chan struct{})
	time.AfterFunc(lasts, func() {
		defer close(goneOn)
		signal(syscall.SIGCONT)
	})
	return goneOn
}

// A reply that does not come in time is asked for once more, and that is said.
func TestInspect_SaysThatItAskedAgain(t *testing.T) {
	t.Parallel()
	store := impatientStore(t, silentOnce(t, redistest.Start(t).Addr))
	for _, repeated := range []bool{true, false} {
		if in, err := store.Inspect(t.Context(), claim(9, time.Hour, 1)); err != nil || in.Statuses[0].Remaining != 9 || in.Repeated != repeated {
			t.Errorf("%+v %v; want the status, asked again %v", in, err, repeated)
		}
	}
}

// impatientStore returns a store whose decisions have 50 ms.
func impatientStore(t *testing.T, address string) *redisstore.Store {
	store := storeOn(t, clientOf(t, redisstore.ClientConfig{Addrs: []string{address}, Timeout: 50 * time.Millisecond}), redisstore.Options{Timeout: 50 * time.Millisecond, CachedRefusals: -1})
	return store
}

// silentOnce returns an address of the server at which the first call of a script gets no reply, nor does its connection
// from then on.
func silentOnce(t *testing.T, server string) string {
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	l := sockettest.Listen(t)
	var silent atomic.Bool
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			redis, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				client.Close()
				return
			}
			all.Go(func() {
				defer redis.Close()
				for said := make([]byte, 64<<10); ; {
					n, err := client.Read(said)
					if err != nil {
						return
					}
					if bytes.Contains(bytes.ToUpper(said[:n]), []byte("EVAL")) && silent.CompareAndSwap(false, true) {
						_, _ = io.Copy(io.Discard, client)
						return
					}
					_, _ = redis.Write(said[:n])
				}
			})
			all.Go(func() { defer client.Close(); _, _ = io.Copy(client, redis) })
		}
	})
	return l.Addr().String()
}

// A question about keys asks the circuit breaker first, and while that is not closed it waits no longer than a decision.
func TestInspect_AsksTheBreaker(t *testing.T) {
	t.Parallel()
	for mode, begin := range singleAndCluster(t) {
		t.Run(mode, func(t *testing.T) {
			c, signal := begin()
			c.Timeout, c.BreakAfter, c.BreakRest = 50*time.Millisecond, 2, time.Hour
			store := storeOn(t, clientOf(t, c), redisstore.Options{Timeout: c.Timeout, CachedRefusals: -1})
			eventually(t, "a connection stands", func() bool {
				_, err := store.Inspect(t.Context(), claim(9, time.Hour, 1))
				return err == nil
			})
			signal(syscall.SIGSTOP)
			defer signal(syscall.SIGCONT)
			if _, err := store.Inspect(t.Context(), claim(9, time.Hour, 1)); !errors.Is(err, limiter.ErrUnavailable) || errors.Is(err, redisstore.ErrOpen) {
				t.Fatalf("the first question: %v; want that it was asked, twice", err)
			}
			if _, err := store.Inspect(t.Context(), claim(9, time.Hour, 1)); !errors.Is(err, redisstore.ErrOpen) {
				t.Errorf("the second question: %v; want ErrOpen", err)
			}
		})
	}
}
