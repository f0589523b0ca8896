package locks

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/rounds"
)

// A resource is a number that is read, raised outside and written back, in a
// server that knows nothing of the lock but the largest token it has seen.
type resource struct {
	rdb         *redis.Client
	read, write *redis.Script
}

func newResource(rdb *redis.Client) *resource {
	return &resource{rdb,
		redis.NewScript(`
			local seen = tonumber(redis.call('GET', 'token') or 0)
			if tonumber(ARGV[1]) < seen then return {0, 0} end
			redis.call('SET', 'token', ARGV[1])
			return {1, tonumber(redis.call('GET', 'number') or 0)}`),
		redis.NewScript(`
			if tonumber(ARGV[1]) < tonumber(redis.call('GET', 'token') or 0) then
				redis.call('INCR', 'refused')
				return 0
			end
			redis.call('SET', 'number', ARGV[2])
			return 1`),
	}
}

// raise adds one under the token; false says that the token was too old.
func (r *resource) raise(ctx context.Context, token int64) (bool, error) {
	reply, err := r.read.Run(ctx, r.rdb, nil, token).Int64Slice()
	if err != nil || reply[0] == 0 {
		return false, err
	}
	done, err := r.write.Run(ctx, r.rdb, nil, token, reply[1]+1).Int()
	return done == 1, err
}

// Three processes raise a number 10,000 times while locks are torn from them:
// deleted as by a failover that lost them, their holders stopped for longer than
// the lease, scripts flushed and connections killed. Every accepted write counts.
func TestFence_NoUpdateIsLost(t *testing.T) {
	rounds := rounds.Of(3_000)
	locks, rdb := server(t)
	data, eye := server(t)
	const children = 3
	var running []*child
	for range children {
		running = append(running, start(t, "fence", locks.Addr, data.Addr, strconv.Itoa(rounds/children+1)))
	}
	stop := make(chan struct{})
	var nemesis sync.WaitGroup
	nemesis.Go(func() { injectFaults(t, rdb, running, stop) })
	accepted := 0
	for _, c := range running {
		line := c.says()
		n, err := strconv.Atoi(strings.TrimPrefix(line, "accepted "))
		if err != nil {
			t.Errorf("the child says %q", line)
		}
		accepted += n
	}
	close(stop)
	nemesis.Wait()

	number, err := eye.Get(minute(t), "number").Int()
	if err != nil || number != accepted {
		t.Errorf("the number is %d (%v) after %d accepted writes: %d updates are lost", number, err, accepted, accepted-number)
	}
	turnedAway, _ := eye.Get(minute(t), "refused").Int()
	if turnedAway == 0 {
		t.Error("the fence has refused nothing: the faults did not bite")
	}
	t.Logf("%d of %d rounds accepted, %d late writes refused by the fence", accepted, rounds, turnedAway)
}

// injectFaults does harm every few milliseconds until stop.
func injectFaults(t *testing.T, rdb *redis.Client, running []*child, stop chan struct{}) {
	tick := time.NewTicker(7 * time.Millisecond)
	defer tick.Stop()
	ctx := context.Background()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		switch {
		case n%40 == 13:
			rdb.ScriptFlush(ctx)
		case n%40 == 26:
			rdb.Do(ctx, "client", "kill", "type", "normal", "skipme", "yes")
		case n%60 == 39:
			c := running[n/60%len(running)]
			c.signalIfAlive(syscall.SIGSTOP)
			select {
			case <-time.After(120 * time.Millisecond): // longer than the lease
			case <-stop:
			}
			c.signalIfAlive(syscall.SIGCONT)
		default:
			rdb.Del(ctx, "a")
		}
	}
}

// signalIfAlive is signal for a child that may have ended.
func (c *child) signalIfAlive(s syscall.Signal) { c.cmd.Process.Signal(s) }
