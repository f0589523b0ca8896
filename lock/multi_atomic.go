package lock

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// atomicMulti is the kind of a Multi of reentrant locks that one script can lock and
// unlock atomically, in one round trip. Its data in Redis is the same as that of a multi.
type atomicMulti struct {
	locker *Locker
	parts  []*reentrant
	keys   []string
}

// newAtomicMulti returns nil unless one script can hold all locks: they must be reentrant
// locks of one Locker, and in a cluster their names must have the same hash tag.
func newAtomicMulti(locks []*Lock) lockKind {
	k := &atomicMulti{locker: locks[0].locker}
	_, cluster := k.locker.rdb.(*redis.ClusterClient)
	for _, lk := range locks {
		part, ok := lk.kind.(*reentrant)
		if !ok || lk.locker != k.locker {
			return nil
		}
		if cluster && (!hasHashTag(lk.name) || hashTag(lk.name) != hashTag(locks[0].name)) {
			return nil
		}
		k.parts, k.keys = append(k.parts, part), append(k.keys, part.name)
	}
	return k
}

// hashTag returns the hash tag of a name that has one.
func hashTag(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	inside, _, _ := strings.Cut(rest, "}")
	return inside
}

func (a *atomicMulti) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := a.locker.run(ctx, a.locker.scripts["joint_lock"], c.replicas, a.keys, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	refused := a.parts[min(max(int(r.index)-1, 0), len(a.parts)-1)]
	return r.attemptResult(a.locker.hub, refused.channel), nil
}

func (a *atomicMulti) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := a.locker.run(ctx, a.locker.scripts["joint_extend"], 0, a.keys, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (a *atomicMulti) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := a.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	args := []any{c.owner.id, c.count, verb}
	for _, p := range a.parts {
		args = append(args, p.channel)
	}
	r, err := a.locker.run(ctx, a.locker.scripts["joint_unlock"], 0, a.keys, args...)
	return r.releaseResult(), err
}
