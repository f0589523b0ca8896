package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"
)

//go:embed audit.lua
var auditScript string

// ErrAuditID reports an invalid cursor.
var ErrAuditID = errors.New("not the id of an audit entry")

// streamID matches the id of an entry of a Redis stream.
var streamID = regexp.MustCompile(`^[0-9]{1,15}-[0-9]{1,15}$`)

// redisAudit stores the audit trail of a cluster in a Redis stream.
type redisAudit struct {
	rdb   redis.UniversalClient
	key   string
	added *redis.Script
}

func newRedisAudit(rdb redis.UniversalClient, prefix string) *redisAudit {
	return &redisAudit{rdb, prefix + ":{cluster}:audit", redis.NewScript(auditScript)}
}

// write implements auditStore. The time of an entry is the time on its node; its
// position in the stream is the order of arrival.
func (r *redisAudit) write(ctx context.Context, e AuditEntry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	return r.added.Run(ctx, r.rdb, []string{r.key}, text, AuditRetention.Milliseconds(), MaxAuditEntries).Err()
}

// page implements auditStore.
func (r *redisAudit) page(ctx context.Context, before string, n int) ([]AuditEntry, error) {
	end := "+"
	if before != "" {
		if !streamID.MatchString(before) {
			return nil, ErrAuditID
		}
		end = "(" + before
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	oldest := strconv.FormatInt(now.Add(-AuditRetention).UnixMilli(), 10)
	messages, err := r.rdb.XRevRangeN(ctx, r.key, end, oldest, int64(n)).Result()
	if err != nil {
		return nil, err
	}
	entries := make([]AuditEntry, len(messages))
	for i, m := range messages {
		text, _ := m.Values["entry"].(string)
		if err := json.Unmarshal([]byte(text), &entries[i]); err != nil {
			return nil, fmt.Errorf("%w: %w", errReply, err)
		}
		entries[i].ID = m.ID
	}
	return entries, nil
}
