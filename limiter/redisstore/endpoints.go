package redisstore

import (
	"context"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// An endpoints hook reads which nodes of a cluster have which slots. A node may leave out the
// host of an endpoint, as with cluster-preferred-endpoint-type unknown-endpoint, or with hostname where none
// is set: then it is the host that was asked. The go-redis client fails on such a reply.
type endpoints struct{ host string }

// isUnknownHost reports whether a node names host for an endpoint whose host it does not tell.
func isUnknownHost(host string) bool { return host == "" || host == "?" }

// DialHook implements redis.Hook.
func (e endpoints) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (e endpoints) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (e endpoints) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		typed, ok := cmd.(*redis.ClusterSlotsCmd)
		if !ok {
			return next(ctx, cmd)
		}
		plain := redis.NewCmd(ctx, cmd.Args()...)
		err := next(ctx, plain)
		if err == nil {
			var slots []redis.ClusterSlot
			slots, err = e.read(plain.Val())
			typed.SetVal(slots)
		}
		typed.SetErr(err)
		return err
	}
}

// read reads the reply to CLUSTER SLOTS.
func (e endpoints) read(reply any) ([]redis.ClusterSlot, error) {
	rows, ok := reply.([]any)
	slots := make([]redis.ClusterSlot, len(rows))
	for i := range rows {
		row, _ := rows[i].([]any)
		if len(row) < 2 {
			return nil, wire.ErrReply
		}
		first, ok1 := row[0].(int64)
		last, ok2 := row[1].(int64)
		ok = ok && ok1 && ok2
		slots[i] = redis.ClusterSlot{Start: int(first), End: int(last)}
		for _, value := range row[2:] {
			node, _ := value.([]any)
			if len(node) < 2 {
				return nil, wire.ErrReply
			}
			host, _ := node[0].(string) // nil if it is unknown
			if isUnknownHost(host) {
				host = e.host
			}
			port, isNumber := node[1].(int64)
			ok = ok && isNumber
			slots[i].Nodes = append(slots[i].Nodes, redis.ClusterNode{Addr: net.JoinHostPort(host, strconv.FormatInt(port, 10))})
		}
	}
	if !ok {
		return nil, wire.ErrReply
	}
	return slots, nil
}
