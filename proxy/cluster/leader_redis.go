package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
)

// leaderTTL is how long the last leader and its runs are kept when no node is
// left.
const leaderTTL = 24 * time.Hour

var (
	//go:embed lead.lua
	leadScript string
	//go:embed note.lua
	noteScript string
)

// redisLeadership is the leadership of a cluster, held as a lock in Redis.
type redisLeadership struct {
	rdb   redis.UniversalClient
	node  string
	lease time.Duration

	lock, leading, runs string // keys

	elector, noted *redis.Script
}

func newRedisLeadership(rdb redis.UniversalClient, prefix, node string, lease time.Duration) *redisLeadership {
	p := prefix + ":{cluster}:"
	return &redisLeadership{
		rdb: rdb, node: node, lease: lease, lock: p + "lead", leading: p + "leader", runs: p + "tasks",
		elector: redis.NewScript(leadScript), noted: fenced(noteScript),
	}
}

// A candidate is a lock that remembers its last owner.
type candidate struct {
	lock.Lockable
	owner lock.Owner
}

// Lock implements lock.Lockable.
func (c *candidate) Lock(ctx context.Context, options ...lock.LockOption) (*lock.Hold, error) {
	hold, err := c.Lockable.Lock(ctx, options...)
	if err == nil {
		c.owner = hold.Owner()
	}
	return hold, err
}

// lead implements leadership.
func (o *redisLeadership) lead(ctx context.Context, work func(context.Context, Term)) error {
	locker := lock.New(o.rdb, lock.WithWatchdog(o.lease))
	defer locker.Close()
	c := &candidate{Lockable: locker.Reentrant(o.lock)}
	return lock.Lead(ctx, c, func(ctx context.Context) {
		t, err := o.startTerm(ctx, c.owner.String())
		if err == nil { // otherwise the lock is released and acquired again
			work(ctx, t)
		}
	})
}

// startTerm stores that this node is the leader.
func (o *redisLeadership) startTerm(ctx context.Context, owner string) (Term, error) {
	reply, err := o.elector.Run(ctx, o.rdb, []string{o.lock, o.leading}, owner, o.node, leaderTTL.Milliseconds()).Int64Slice()
	if err != nil {
		return Term{}, fmt.Errorf("take the lead: %w", err)
	}
	if len(reply) != 2 {
		return Term{}, fmt.Errorf("take the lead: %w", errReply)
	}
	return Term{Token: reply[0], Since: time.UnixMilli(reply[1]).UTC()}, nil
}

// fence returns the fence that rejects former leaders.
func (o *redisLeadership) fence() fence { return fence{o.rdb, o.leading} }

// note implements leadership.
func (o *redisLeadership) note(ctx context.Context, t Term, r Run) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := o.fence().run(ctx, o.noted, t, []string{o.runs}, r.Task, text, leaderTTL.Milliseconds()); err != nil {
		return fmt.Errorf("note a run of %s: %w", r.Task, err)
	}
	return nil
}

// current implements leadership.
func (o *redisLeadership) current(ctx context.Context) (Leadership, error) {
	var held *redis.IntCmd
	var who, runs *redis.MapStringStringCmd
	_, err := o.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		held, who, runs = p.Exists(ctx, o.lock), p.HGetAll(ctx, o.leading), p.HGetAll(ctx, o.runs)
		return nil
	})
	if err != nil {
		return Leadership{}, fmt.Errorf("read leader: %w", err)
	}
	l := Leadership{Tasks: []Run{}}
	for _, name := range slices.Sorted(maps.Keys(runs.Val())) {
		var r Run
		if err := json.Unmarshal([]byte(runs.Val()[name]), &r); err != nil {
			return Leadership{}, fmt.Errorf("read leader: %w: %w", errReply, err)
		}
		l.Tasks = append(l.Tasks, r)
	}
	if held.Val() == 0 {
		return l, nil
	}
	token, err1 := strconv.ParseInt(who.Val()["token"], 10, 64)
	since, err2 := strconv.ParseInt(who.Val()["since"], 10, 64)
	if err1 == nil && err2 == nil {
		l.Node, l.Token, l.Since = who.Val()["node"], token, time.UnixMilli(since).UTC()
	}
	return l, nil
}
