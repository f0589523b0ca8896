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

// Group returns a lock of some values of a group, which are held together: all or none,
// in one round trip. Two Groups with the same name exclude each other if they have a
// value in common. In a cluster they need no hash tag, because a group is one key. It is
// compatible with Redisson's getMultiLock with a name and values: a hash under name with
// three fields for each value that is held.
//
// A value is the output of the codec of the Java program: the UTF-8 string for
// StringCodec, the decimal digits for LongCodec. The output of serializing codecs, such
// as the default Kryo codec, cannot be produced here. The order of values and duplicates
// do not matter.
//
// If a holder dies, its values are free one lease later, by the clock of Redis. Java uses
// its own clock for the end of a lease: if that clock is ahead by more than two thirds of
// the lease, Java acquires what is still held here; if it is behind by as much, this
// package acquires what is still held by Java.
//
// One owner can hold several Groups with the same name if they have no value in common.
func (l *Locker) Group(name string, values ...string) *Lock {
	fields := make([]string, 0, len(values))
	for _, v := range values {
		fields = append(fields, fieldOf(v))
	}
	slices.Sort(fields)
	k := &group{locker: l, name: name, channel: prefixedKey("redisson_lock__channel", name), fields: slices.Compact(fields)}
	lk := l.newLock(name, k, traits{exclusive: true, reentrant: true})
	lk.namespace = "group " + strings.Join(k.fields, "") + " "
	for _, f := range k.fields {
		lk.resources = append(lk.resources, "group "+f+" "+name)
	}
	if len(fields) == 0 && lk.err == nil {
		lk.err = fmt.Errorf("%w: group %q has no values", ErrInvalidName, name)
	}
	return lk
}

// fieldOf returns the field name of a value: its HighwayHash with Redisson's key, both
// halves in big-endian order as in Java, in base64 without padding.
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
	fields        []string // sorted field names of the values
}

// run runs a script with the fields as its last arguments.
func (g *group) run(ctx context.Context, script string, replicas int, args ...any) (reply, error) {
	line := make([]any, 0, len(args)+len(g.fields))
	line = append(line, args...)
	for _, f := range g.fields {
		line = append(line, f)
	}
	return g.locker.run(ctx, g.locker.scripts[script], replicas, []string{g.name}, line...)
}

func (g *group) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := g.run(ctx, "group_lock", c.replicas, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return r.attemptResult(g.locker.hub, g.channel), nil
}

func (g *group) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := g.run(ctx, "group_extend", 0, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (g *group) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := g.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := g.run(ctx, "group_unlock", 0, c.owner.id, c.count, verb, g.channel)
	return r.releaseResult(), err
}

func (g *group) leaseLeft(ctx context.Context) (reply, error) { return g.run(ctx, "group_look", 0) }

func (g *group) force(ctx context.Context) (reply, error) {
	verb, err := g.locker.publishCommand(ctx)
	if err != nil {
		return reply{}, err
	}
	return g.run(ctx, "group_force", 0, verb, g.channel)
}
