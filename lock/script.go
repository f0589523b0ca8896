package lock

import (
	"context"
	"crypto/sha1" // Redis names scripts by it
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

// A script is one Lua program and the name Redis knows it by.
type script struct {
	name, source, sha string
}

// loadScripts reads every program of this package.
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

// A once is a command that the client never sends again by itself: a reply that
// got lost must not make a script run a second time behind our back.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis so.
func (once) NoRetry() bool { return true }

// command makes "EVALSHA sha n keys… args…", or EVAL with the source.
func (s *script) command(ctx context.Context, verb string, keys []string, args []any) once {
	program := s.sha
	if verb == "eval" {
		program = s.source
	}
	line := make([]any, 0, 3+len(keys)+len(args))
	line = append(line, verb, program, len(keys))
	for _, k := range keys {
		line = append(line, k)
	}
	return once{redis.NewCmd(ctx, append(line, args...)...)}
}

// run runs s at most once and returns its reply as size integers. A script that
// the server has forgotten is sent in full. One round trip, or two then.
func (s *script) run(ctx context.Context, rdb redis.UniversalClient, size int, keys []string, args ...any) ([]int64, error) {
	cmd := s.command(ctx, "evalsha", keys, args)
	err := rdb.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = s.command(ctx, "eval", keys, args)
		err = rdb.Process(ctx, cmd)
	}
	if err != nil {
		return nil, s.failed(ctx, rdb, err)
	}
	return s.decode(cmd.Val(), size)
}

// failed wraps err. A node of a cluster that does not answer, or not for this
// key, may have been replaced; the client only asks for that when it is let to
// try again by itself.
func (s *script) failed(ctx context.Context, rdb redis.UniversalClient, err error) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok && passing(err) {
		cluster.ReloadState(ctx) // in the background, not more often than every 200 ms
	}
	return fmt.Errorf("run %s: %w", s.name, err)
}

// unknown reports whether err leaves open what the server has done. It has done
// nothing when it said so, and when there was no connection to send over.
func unknown(err error) bool {
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

// runSynced is run, followed on the same connection by WAIT for so many
// replicas. It returns ErrNotSynced when fewer confirmed what the script has
// taken; the first integer of a reply tells whether it took anything.
func (s *script) runSynced(ctx context.Context, rdb redis.UniversalClient, replicas, size int, keys []string, args ...any) ([]int64, error) {
	node := rdb
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		// WAIT has no key: only the node itself can be asked.
		master, err := cluster.MasterForKey(ctx, keys[0])
		if err != nil {
			return nil, s.failed(ctx, rdb, err)
		}
		node = master
	}
	cmd, confirmed, err := s.pipeline(ctx, node, "evalsha", replicas, keys, args)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd, confirmed, err = s.pipeline(ctx, node, "eval", replicas, keys, args)
	}
	if err != nil {
		return nil, s.failed(ctx, rdb, err)
	}
	reply, err := s.decode(cmd.Val(), size)
	if err == nil && reply[0] == 1 && confirmed < int64(replicas) {
		err = fmt.Errorf("%w: %d of %d", ErrNotSynced, confirmed, replicas)
	}
	return reply, err
}

// pipeline sends the script and WAIT together. WAIT takes a third of the time
// left: servers look at its end ten times a second only.
func (s *script) pipeline(ctx context.Context, node redis.UniversalClient, verb string, replicas int, keys []string, args []any) (once, int64, error) {
	patience := time.Second
	if deadline, ok := ctx.Deadline(); ok {
		patience = max(time.Until(deadline)/3, time.Millisecond)
	}
	pipe := node.Pipeline()
	cmd := s.command(ctx, verb, keys, args)
	pipe.Process(ctx, cmd)
	wait := once{redis.NewCmd(ctx, "wait", replicas, patience.Milliseconds())}
	pipe.Process(ctx, wait)
	if _, err := pipe.Exec(ctx); err != nil {
		return cmd, 0, err
	}
	confirmed, err := wait.Int64()
	return cmd, confirmed, err
}

// decode insists on an array of exactly size integers.
func (s *script) decode(reply any, size int) ([]int64, error) {
	items, ok := reply.([]any)
	if !ok || len(items) != size {
		return nil, fmt.Errorf("run %s: the reply is %T of %v, not %d integers", s.name, reply, reply, size)
	}
	numbers := make([]int64, size)
	for i, item := range items {
		n, ok := item.(int64)
		if !ok {
			return nil, fmt.Errorf("run %s: item %d of the reply is %T, not an integer", s.name, i, item)
		}
		numbers[i] = n
	}
	return numbers, nil
}
