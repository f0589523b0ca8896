package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// saltTTL is how long the salt is kept after a node has last read it.
const saltTTL = 30 * 24 * time.Hour

// Salt returns the salt for the hashes in logs. It is common to all nodes that share
// rdb and prefix, so that a key has the same hash in all their logs; the first caller
// creates it. Each call extends its life by a month. It only protects logs from
// readers without access to Redis: key names in the store do not depend on it, so
// counts survive its loss.
func Salt(ctx context.Context, rdb redis.UniversalClient, prefix string, own [32]byte) (salt [32]byte, err error) {
	key := prefix + ":{cluster}:salt"
	var agreed *redis.StringCmd
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, key, own[:], saltTTL)
		agreed = p.GetEx(ctx, key, saltTTL)
		return nil
	})
	if err != nil {
		return own, fmt.Errorf("agree on log salt: %w", err)
	}
	text := agreed.Val()
	if len(text) != len(salt) {
		return own, fmt.Errorf("agree on log salt: %s holds %d bytes, want %d", key, len(text), len(salt))
	}
	copy(salt[:], text)
	return salt, nil
}
