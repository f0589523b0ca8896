package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// saltTTL is how long a salt is kept after a node has asked for it last.
const saltTTL = 30 * 24 * time.Hour

// Salt is what all nodes that share rdb and prefix make the hashes in their logs with,
// so that one key looks the same in all of them: that of the first one who asks.
// Asking keeps it for another month. It protects logs from people who cannot read
// Redis, and nothing else: no name of a key depends on it, so that a Redis which has
// lost it counts on.
func Salt(ctx context.Context, rdb redis.UniversalClient, prefix string, own [32]byte) (salt [32]byte, err error) {
	key := prefix + ":{cluster}:salt"
	var agreed *redis.StringCmd
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, key, own[:], saltTTL)
		agreed = p.GetEx(ctx, key, saltTTL)
		return nil
	})
	if err != nil {
		return own, fmt.Errorf("agree on the salt of logs: %w", err)
	}
	text := agreed.Val()
	if len(text) != len(salt) {
		return own, fmt.Errorf("agree on the salt of logs: %s holds %d bytes, want %d", key, len(text), len(salt))
	}
	copy(salt[:], text)
	return salt, nil
}
