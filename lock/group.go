package lock

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/minio/highwayhash"
)

// Group returns a lock for several values of a group: all or none, in one round trip,
// whatever their number. Two Groups of one name exclude each other if they share a value.
// In a cluster they need no hash tag, because a group is one key. It is Redisson's
// getMultiLock with a name and values: a hash under name with three fields for each held
// value.
//
// Values are compared as encoded by the codec of the Java side: with StringCodec a string
// in UTF-8, with LongCodec decimal digits; serializing codecs (Kryo, the default, too)
// produce bytes that Go programs cannot reproduce. The order of the values and duplicates
// do not matter.
//
// If a holder dies, its values are free one lease later, by the clock of Redis. Java uses
// its own clock for the end of a lease: if it is fast by more than two thirds of the lease,
// Java takes values that are still held; if it is slow by as much, this package takes
// values that Java still holds.
//
// An owner can hold several Groups of one name if they have no value in common.
func (l *Locker) Group(name string, values ...string) *Lock {
	fields := make([]string, 0, len(values))
	for _, v := range values {
		fields = append(fields, fieldOf(v))
	}
	slices.Sort(fields)
	k := &group{locker: l, name: name, channel: prefixed("redisson_lock__channel", name), fields: slices.Compact(fields)}
	lk := l.newLock(name, k, traits{exclusive: true, enters: true})
	lk.role = "group " + strings.Join(k.fields, "") + " "
	for _, f := range k.fields {
		lk.things = append(lk.things, "group "+f+" "+name)
	}
	if len(fields) == 0 && lk.err == nil {
		lk.err = fmt.Errorf("%w: group %q has no values to hold", ErrBadName, name)
	}
	return lk
}

// fieldOf returns the field of a value: its HighwayHash with Redisson's key, both halves in
// big-endian order, in base64 without padding.
func fieldOf(value string) string {
	var key []byte
	for _, n := range []uint64{0x9e3779b97f4a7c15, 0xf39cc0605cedc834, 0x1082276bf3a27251, 0xf86c6a11d0c18e95} {
		key = binary.LittleEndian.AppendUint64(key, n)
	}
	sum := highwayhash.Sum128([]byte(value), key)
	slices.Reverse(sum[:8])
	slices.Reverse(sum[8:])
	return base64.RawStdEncoding.EncodeToString(sum[:])
}

// group is the kind of Group.
type group struct {
	locker        *Locker
	name, channel string
	fields        []string // of the values, in order
}

// run runs a script whose last arguments are the fields.
func (k *group) run(ctx context.Context, script string, replicas int, args ...any) (reply, error) {
	line := make([]any, 0, len(args)+len(k.fields))
	line = append(line, args...)
	for _, f := range k.fields {
		line = append(line, f)
	}
	return k.locker.run(ctx, k.locker.scripts[script], replicas, []string{k.name}, line...)
}

func (k *group) attempt(ctx context.Context, c claim) (answer, error) {
	r, err := k.run(ctx, "group_lock", c.replicas, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return answer{}, err
	}
	return r.answer(k.locker.hub, k.channel), nil
}

func (k *group) extend(ctx context.Context, c claim) (bool, error) {
	r, err := k.run(ctx, "group_extend", 0, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (k *group) release(ctx context.Context, c claim) (released, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return released{}, err
	}
	r, err := k.run(ctx, "group_unlock", 0, c.owner.id, c.count, verb, k.channel)
	return r.released(), err
}

func (k *group) look(ctx context.Context) (reply, error) { return k.run(ctx, "group_look", 0) }

func (k *group) force(ctx context.Context) (reply, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return reply{}, err
	}
	return k.run(ctx, "group_force", 0, verb, k.channel)
}
