package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed raise.lua
	raiseScript string
	//go:embed done.lua
	doneScript string
)

// A queue is the outbox that the nodes of a cluster share.
type queue struct {
	fence  fence
	prefix string

	raised, over *redis.Script
}

func newQueue(rdb redis.UniversalClient, prefix string) *queue {
	p := prefix + ":{cluster}:"
	return &queue{fence{rdb, p + "leader"}, p, fenced(raiseScript), fenced(doneScript)}
}

func (q *queue) key() string { return q.prefix + "alerts" }

// raise implements outbox.
func (q *queue) raise(ctx context.Context, t Term, a Alert, repeat time.Duration) (raised, full bool, err error) {
	text, err := json.Marshal(a)
	if err != nil {
		return false, false, err
	}
	keys := []string{q.prefix + "alerted:" + a.subject(), q.key()}
	reply, err := q.fence.run(ctx, q.raised, t, keys, text, repeat.Milliseconds(), mostQueued, (2 * sendWithin).Milliseconds())
	if err != nil {
		return false, false, fmt.Errorf("raise an alert: %w", err)
	}
	return reply == int64(1), reply == int64(-1), nil
}

// next implements outbox.
func (q *queue) next(ctx context.Context) (letter, bool, error) {
	text, err := q.fence.rdb.LIndex(ctx, q.key(), 0).Result()
	if errors.Is(err, redis.Nil) {
		return letter{}, false, nil
	}
	if err != nil {
		return letter{}, false, fmt.Errorf("read alerts: %w", err)
	}
	l := letter{text: text}
	if err := json.Unmarshal([]byte(text), &l.Alert); err != nil {
		return letter{}, false, fmt.Errorf("read alerts: %w: %w", errReply, err)
	}
	return l, true, nil
}

// done implements outbox.
func (q *queue) done(ctx context.Context, t Term, l letter) error {
	if _, err := q.fence.run(ctx, q.over, t, []string{q.key()}, l.text); err != nil {
		return fmt.Errorf("take out an alert: %w", err)
	}
	return nil
}
