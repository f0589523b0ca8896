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

// redisAlerts is the alert queue of a cluster.
type redisAlerts struct {
	fence  fence
	prefix string

	raised, over *redis.Script
}

func newRedisAlerts(rdb redis.UniversalClient, prefix string) *redisAlerts {
	p := prefix + ":{cluster}:"
	return &redisAlerts{fence{rdb, p + "leader"}, p, fenced(raiseScript), fenced(doneScript)}
}

func (r *redisAlerts) key() string { return r.prefix + "alerts" }

// raise implements alertQueue.
func (r *redisAlerts) raise(ctx context.Context, t Term, a Alert, repeat time.Duration) (raised, full bool, err error) {
	text, err := json.Marshal(a)
	if err != nil {
		return false, false, err
	}
	keys := []string{r.prefix + "alerted:" + a.subject(), r.key()}
	reply, err := r.fence.run(ctx, r.raised, t, keys, text, repeat.Milliseconds(), maxQueuedAlerts, (2 * alertLifetime).Milliseconds())
	if err != nil {
		return false, false, fmt.Errorf("raise an alert: %w", err)
	}
	return reply == int64(1), reply == int64(-1), nil
}

// next implements alertQueue.
func (r *redisAlerts) next(ctx context.Context) (queuedAlert, bool, error) {
	text, err := r.fence.rdb.LIndex(ctx, r.key(), 0).Result()
	if errors.Is(err, redis.Nil) {
		return queuedAlert{}, false, nil
	}
	if err != nil {
		return queuedAlert{}, false, fmt.Errorf("read alerts: %w", err)
	}
	l := queuedAlert{text: text}
	if err := json.Unmarshal([]byte(text), &l.Alert); err != nil {
		return queuedAlert{}, false, fmt.Errorf("read alerts: %w: %w", errReply, err)
	}
	return l, true, nil
}

// done implements alertQueue.
func (r *redisAlerts) done(ctx context.Context, t Term, l queuedAlert) error {
	if _, err := r.fence.run(ctx, r.over, t, []string{r.key()}, l.text); err != nil {
		return fmt.Errorf("take out an alert: %w", err)
	}
	return nil
}
