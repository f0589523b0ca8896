package lock

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// joint is the kind of a Multi of reentrant locks on one server: one script takes all or
// none, in one round trip. The data in Redis is the same as for multi.
type joint struct {
	locker *Locker
	parts  []*reentrant
	keys   []string
}

// newJoint returns nil unless one script can hold all parts: they must be reentrant locks
// of one Locker, and in a cluster their names must have the same hash tag.
func newJoint(locks []*Lock) kind {
	k := &joint{locker: locks[0].locker}
	_, cluster := k.locker.rdb.(*redis.ClusterClient)
	for _, lk := range locks {
		part, ok := lk.kind.(*reentrant)
		if !ok || lk.locker != k.locker {
			return nil
		}
		if cluster && (!tagged(lk.name) || tag(lk.name) != tag(locks[0].name)) {
			return nil
		}
		k.parts, k.keys = append(k.parts, part), append(k.keys, part.name)
	}
	return k
}

// tag returns the hash tag of a name that has one.
func tag(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	inside, _, _ := strings.Cut(rest, "}")
	return inside
}

func (k *joint) attempt(ctx context.Context, c claim) (answer, error) {
	r, err := k.locker.run(ctx, k.locker.scripts["joint_lock"], c.replicas, k.keys, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return answer{}, err
	}
	refused := k.parts[min(max(int(r.which)-1, 0), len(k.parts)-1)]
	return r.answer(k.locker.hub, refused.channel), nil
}

func (k *joint) extend(ctx context.Context, c claim) (bool, error) {
	r, err := k.locker.run(ctx, k.locker.scripts["joint_extend"], 0, k.keys, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (k *joint) release(ctx context.Context, c claim) (released, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return released{}, err
	}
	args := []any{c.owner.id, c.count, verb}
	for _, p := range k.parts {
		args = append(args, p.channel)
	}
	r, err := k.locker.run(ctx, k.locker.scripts["joint_unlock"], 0, k.keys, args...)
	return r.released(), err
}
