package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// In a cluster the note of a permit and the permit are on different masters, each with replicas of its own. If
// a permit is returned and the master of its note then fails before a replica knows that the note is gone, the note is
// there again, and a second return of the subject returns the permit of somebody else, whose bucket is the same, and
// confirms the subject once more. So the note is removed on the replicas, too, before its permits are returned. If they do
// not confirm that in time, nothing is returned: the permits stay taken until they expire.
//
// What remains is a replica that was not connected and becomes master all the same, as
// cluster-replica-validity-factor 0 allows. Then each note that it still has may be returned once more.

// errNotReplicated reports that replicas did not confirm a write in time.
var errNotReplicated = errors.New("replicas have not confirmed in time that the note is gone")

// unnote takes parts out of a note, and waits until the connected replicas have done so.
func (s *Store) unnote(ctx context.Context, key string, args []any) ([]any, error) {
	reply, conn, err := s.unnoteOnMaster(ctx, key, args)
	if conn != nil {
		defer conn.Close()
	}
	if err != nil {
		return nil, err
	}
	parts, ok := reply.([]any)
	if !ok {
		return nil, wire.ErrReply
	}
	if len(parts) > 0 && conn != nil {
		err = awaitReplicas(ctx, conn, s.timeout/2)
	}
	return parts, err
}

// unnoteOnMaster returns the reply, and the connection on which it came: nil while the slot moves.
func (s *Store) unnoteOnMaster(ctx context.Context, key string, args []any) (reply any, conn *redis.Conn, err error) {
	keys := []string{key}
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		conn = node.Conn()
		reply, err = s.scripts.unnote.run(ctx, conn, keys, args)
		if !redis.HasErrorPrefix(err, "MOVED") && !redis.HasErrorPrefix(err, "ASK") {
			return reply, conn, err
		}
		conn.Close()
	}
	reply, err = s.scripts.unnote.run(ctx, s.client, keys, args)
	return reply, nil, err
}

// awaitReplicas waits until all connected replicas have what was written on conn. A user who may not ask does not wait.
func awaitReplicas(ctx context.Context, conn *redis.Conn, timeout time.Duration) error {
	info, err := conn.Info(ctx, "replication").Result()
	replicas := strings.Count(info, "state=online")
	if err != nil || replicas == 0 {
		return unlessRefused(err)
	}
	confirmed, err := conn.Wait(ctx, replicas, timeout).Result()
	if err != nil {
		return unlessRefused(err)
	}
	if confirmed < int64(replicas) {
		return errNotReplicated
	}
	return nil
}

// unlessRefused returns err, or nil if Redis replied with it.
func unlessRefused(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) {
		return nil
	}
	return err
}
