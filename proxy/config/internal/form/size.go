package form

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// errSize reports that a text is no size.
var errSize = errors.New("not a size")

// A Size is a number of bytes, written with its unit: 512B, 64KiB, 1MiB, 2GiB.
type Size int64

// units are the largest first; each is a multiple of the next.
func units() []string { return []string{"GiB", "MiB", "KiB", "B"} }

// bytesOf is how many bytes the unit i of units has.
func bytesOf(i int) int64 { return 1 << (10 * (len(units()) - 1 - i)) }

// ParseSize reads a whole number with a unit. It is above 0.
func ParseSize(text string) (Size, error) {
	for i, unit := range units() {
		digits, ok := strings.CutSuffix(text, unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || !whole.MatchString(digits) || n <= 0 || n > math.MaxInt64/bytesOf(i) {
			break
		}
		return Size(n * bytesOf(i)), nil
	}
	return 0, fmt.Errorf("%w: %q", errSize, text)
}

// String writes s in the largest unit that divides it.
func (s Size) String() string {
	for i, unit := range units() {
		if n := bytesOf(i); int64(s)%n == 0 {
			return strconv.FormatInt(int64(s)/n, 10) + unit
		}
	}
	return "" // a byte divides everything
}

// MarshalYAML writes s as it is read.
func (s Size) MarshalYAML() (any, error) { return s.String(), nil }

// size decodes a number of bytes with its unit.
func (d *decoder) size(n *yaml.Node, p Location, v reflect.Value) {
	if n.Kind != yaml.ScalarNode {
		d.Add(p, "want a size, got "+kindName(n), "write a number with a unit, for example 64KiB")
		return
	}
	text, ok := d.expand(n, p)
	if !ok {
		return
	}
	s, err := ParseSize(text)
	switch {
	case whole.MatchString(text):
		d.Add(p, text+" has no unit", "write a number with a unit: B, KiB, MiB or GiB, for example 64KiB")
	case err != nil:
		d.Add(p, Quote(text)+" is not a size", "write a whole number above 0 with a unit: B, KiB, MiB or GiB, for example 64KiB")
	default:
		v.SetInt(int64(s))
	}
}
