package limiter

import "math/bits"

// permits is a number of permits in 24 bits, whose maximum is more than the count of any
// limit with notes.
type permits [3]byte

// maxPermits is the maximum number of permits.
const maxPermits = 1<<24 - 1

func (p *permits) count() int64 {
	n := int64(p[0]) | int64(p[1])<<8 | int64(p[2])<<16
	if n == maxPermits {
		return MaxCount
	}
	return n
}

// add adds n, which may be negative, and saturates at maxPermits.
func (p *permits) add(n int64) {
	if was := p.count(); was < maxPermits {
		n = min(was+n, maxPermits)
		p[0], p[1], p[2] = byte(n), byte(n>>8), byte(n>>16)
	}
}

// packHorizon stores the 11 highest bits of a horizon and its length in bits: rounded up by
// at most a thousandth.
func packHorizon(ms int64) uint16 {
	shift := max(0, bits.Len64(uint64(ms))-11)
	ms = (ms + 1<<shift - 1) >> shift
	if ms >= 1<<11 {
		ms, shift = ms>>1, shift+1
	}
	return uint16(shift<<11) | uint16(ms)
}

func unpackHorizon(packed uint16) int64 { return int64(packed&(1<<11-1)) << (packed >> 11) }
