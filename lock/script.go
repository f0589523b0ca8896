package lock

import (
	"context"
	"crypto/sha1" // Redis identifies scripts by it
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var sources embed.FS

// A script is a Lua script and the hash by which Redis identifies it.
type script struct {
	name, source, sha string
}

// loadScripts loads all scripts of this package by name.
func loadScripts() map[string]*script {
	entries, err := sources.ReadDir(".")
	if err != nil {
		panic(err) // the files are part of the binary
	}
	scripts := make(map[string]*script, len(entries))
	for _, e := range entries {
		source, err := sources.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha1.Sum(source)
		name := strings.TrimSuffix(e.Name(), ".lua")
		scripts[name] = &script{name: name, source: string(source), sha: hex.EncodeToString(sum[:])}
	}
	return scripts
}

// A noRetryCmd is a command that the client does not retry: if a reply is lost, the
// script must not run a second time unnoticed.
type noRetryCmd struct{ *redis.Cmd }

// NoRetry tells go-redis not to retry the command.
func (noRetryCmd) NoRetry() bool { return true }

// command returns "EVALSHA sha n keys… args…", or EVAL with the source.
func (s *script) command(ctx context.Context, verb string, keys []string, args []any) noRetryCmd {
	program := s.sha
	if verb == "eval" {
		program = s.source
	}
	line := make([]any, 0, 3+len(keys)+len(args))
	line = append(line, verb, program, len(keys))
	for _, k := range keys {
		line = append(line, k)
	}
	return noRetryCmd{redis.NewCmd(ctx, append(line, args...)...)}
}

// A reply is the reply of a script: an integer if the script has done what it was asked
// to do, otherwise an array of at most two integers. An integer takes Redis a third of a
// µs less.
type reply struct {
	done     bool
	n, index int64
}

// run runs s at most once and returns its reply. If the server does not have the script, the source is sent. So it takes
// one round trip, or two. With replicas it is followed on the same connection by WAIT, and returns ErrNotSynced if fewer
// of them confirmed what the script has taken.
func (s *script) run(ctx context.Context, rdb redis.UniversalClient, replicas int, keys []string, args []any) (
	reply, error) {
	node := rdb
	if cluster, ok := rdb.(*redis.ClusterClient); ok && replicas > 0 {
		// WAIT has no key, so it must be sent to the node directly.
		master, err := cluster.MasterForKey(ctx, keys[0])
		if err != nil {
			return reply{}, s.failed(ctx, rdb, err)
		}
		node = master
	}
	cmd := s.command(ctx, "evalsha", keys, args)
	confirmed, err := send(ctx, node, cmd, replicas)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = s.command(ctx, "eval", keys, args)
		confirmed, err = send(ctx, node, cmd, replicas)
	}
	if err != nil {
		return reply{}, s.failed(ctx, rdb, err)
	}
	r, err := s.decode(cmd.Val())
	if err == nil && r.done && confirmed < int64(replicas) {
		err = fmt.Errorf("%w: %d of %d", ErrNotSynced, confirmed, replicas)
	}
	return r, err
}

// failed wraps err. In a cluster it also reloads the slots, because a node that does not
// reply, or not for this key, may have been replaced, and the client does this only when
// it retries.
func (s *script) failed(ctx context.Context, rdb redis.UniversalClient, err error) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok && isTemporary(err) {
		cluster.ReloadState(ctx) // in the background, at most every 200 ms
	}
	return fmt.Errorf("run %s: %w", s.name, err)
}

// isOutcomeUnknown reports whether the server may have executed the call that returned
// err. It has not if it replied so, or if there was no connection.
func isOutcomeUnknown(err error) bool {
	if err == nil || replied(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	network, ok := errors.AsType[*net.OpError](err)
	return !ok || network.Op != "dial"
}

// replied reports whether err is what a server said.
func replied(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// send sends a script, and WAIT together with it if there are replicas, and returns how many of them have confirmed.
// WAIT gets a third of the remaining time, because servers check its timeout only ten times a second.
func send(ctx context.Context, node redis.UniversalClient, cmd noRetryCmd, replicas int) (int64, error) {
	if replicas <= 0 {
		return 0, node.Process(ctx, cmd)
	}
	timeout := time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline)/3, time.Millisecond)
	}
	pipe := node.Pipeline()
	pipe.Process(ctx, cmd)
	wait := noRetryCmd{redis.NewCmd(ctx, "wait", replicas, timeout.Milliseconds())}
	pipe.Process(ctx, wait)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	return wait.Int64()
}

// decode checks the type of a reply.
func (s *script) decode(answer any) (reply, error) {
	switch a := answer.(type) {
	case int64:
		return reply{done: true, n: a}, nil
	case []any:
		numbers := [2]int64{-1} // of an empty array
		whole := len(a) <= len(numbers)
		for i := 0; whole && i < len(a); i++ {
			numbers[i], whole = a[i].(int64)
		}
		if whole {
			return reply{n: numbers[0], index: numbers[1]}, nil
		}
	}
	return reply{}, fmt.Errorf("run %s: the reply is %T of %v, not an integer or an array of up to two",
		s.name, answer, answer)
}
