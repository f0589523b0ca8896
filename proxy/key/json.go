package key

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is the maximum nesting of a document. Parsers have different limits; no API
// needs this depth.
const maxDepth = 64

// lookup returns the scalar that pointer refers to in doc, "" if there is none; a number as
// it is written. It reads doc to its end in one pass, without building a tree. ErrAmbiguous
// reports documents that parsers could read differently: duplicate names in any object,
// invalid UTF-8, half a surrogate pair, trailing data, other faults and deep nesting; and names
// on the path that differ from the pointer's only in case, which some treat as equal.
func (v *Value) lookup(doc []byte, pointer string) (result, error) {
	v.buffer = *bytes.NewBuffer(doc)
	if v.json == nil {
		v.json = new(jsontext.Decoder)
	}
	v.json.Reset(&v.buffer)
	w := walk{Decoder: v.json}
	if err := w.value(pointer); err != nil {
		return result{}, err
	}
	if _, err := w.ReadToken(); !errors.Is(err, io.EOF) {
		return result{}, fmt.Errorf("%w: trailing data after the JSON", ErrAmbiguous)
	}
	return w.result, w.fault
}

// A walk is one pass through a document.
type walk struct {
	*jsontext.Decoder
	result
	fault error // an error of the value, if the document is well formed
}

// value reads a value in which pointer is looked up; "" refers to the value itself.
func (w *walk) value(pointer string) error {
	kind := w.PeekKind()
	hasEntries := kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray
	switch {
	case w.StackDepth() > maxDepth:
		return fmt.Errorf("%w: JSON nested deeper than %d", ErrAmbiguous, maxDepth)
	case hasEntries && pointer == "":
		w.fault = fmt.Errorf("%w: it is a JSON object or array", ErrInvalid)
		return w.skip()
	case hasEntries:
		return w.entries(pointer)
	case pointer != "":
		return w.skip()
	}
	t, err := w.token()
	if err != nil {
		return err
	}
	if w.text = t.String(); kind != jsontext.KindString {
		w.kind = kind
	}
	return nil
}

// entries reads an object or array, in whose entries pointer is looked up.
func (w *walk) entries(pointer string) error {
	begin, err := w.token()
	if err != nil {
		return err
	}
	isObject := begin.Kind() == jsontext.KindBeginObject
	wanted, rest := segment(pointer)
	for i := 0; w.PeekKind() != jsontext.KindEndObject && w.PeekKind() != jsontext.KindEndArray; i++ {
		isWanted := i == index(wanted)
		if isObject {
			t, err := w.token()
			if err != nil {
				return err
			}
			found := t.String() // does not allocate
			if isWanted = found == wanted; !isWanted && strings.EqualFold(found, wanted) {
				return fmt.Errorf("%w: JSON names that differ only in case", ErrAmbiguous)
			}
		}
		if isWanted {
			err = w.value(rest)
		} else {
			err = w.skip()
		}
		if err != nil {
			return err
		}
	}
	_, err = w.token() // } or ]
	return err
}

// skip skips a value.
func (w *walk) skip() error {
	for depth := w.StackDepth(); ; {
		if _, err := w.token(); err != nil {
			return err
		}
		switch d := w.StackDepth(); {
		case d <= depth:
			return nil
		case d > maxDepth:
			return fmt.Errorf("%w: JSON nested deeper than %d", ErrAmbiguous, maxDepth)
		}
	}
}

// token reads the next token. Errors do not contain the input.
func (w *walk) token() (jsontext.Token, error) {
	t, err := w.ReadToken()
	if err != nil {
		err = fmt.Errorf("%w: not JSON as all servers read it, or a name in it is repeated", ErrAmbiguous)
	}
	return t, err
}

// segment splits the first name off a JSON Pointer (RFC 6901) that is not empty.
func segment(p string) (name, rest string) {
	name = p[1:]
	if i := strings.IndexByte(name, '/'); i >= 0 {
		name, rest = name[:i], name[i:]
	}
	if strings.IndexByte(name, '~') >= 0 {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	}
	return name, rest
}

// index parses an array index; -1 if name is not one.
func index(name string) int {
	n, err := strconv.ParseUint(name, 10, 31)
	if err != nil || len(name) > 9 || len(name) > 1 && name[0] == '0' {
		return -1
	}
	return int(n)
}

const (
	maxNumeral = 64 // characters of a number
	maxWhole   = 40 // digits of an integer
)

// maxExact is the largest integer that 64-bit floating point, as in JavaScript, represents
// exactly and distinguishes from the next one.
const maxExact = 1<<53 - 1

// canonicalJSON returns the text of a JSON value for a key. The number 42 and the string
// "42" are the same key, because most programs treat them as the same phone number or user.
// Other numbers and booleans have different texts in each language; they are ErrAmbiguous: a
// fraction, an exponent and a negative zero, which Python, Ruby, Java and JavaScript format differently.
func canonicalJSON(f result, err error) (result, error) {
	switch {
	case err != nil:
		return result{}, err
	case f.kind == jsontext.KindTrue, f.kind == jsontext.KindFalse:
		return result{}, fmt.Errorf("%w: a JSON boolean; send a string", ErrAmbiguous)
	case f.kind != jsontext.KindNumber:
		return f, nil
	}
	n, err := strconv.ParseInt(f.text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != f.text || n > maxExact || n < -maxExact {
		return result{}, fmt.Errorf("%w: a JSON number that is not a plain integer, or beyond %d; send a string",
			ErrAmbiguous, int64(maxExact))
	}
	f.kind = 0
	return f, nil
}

// numeralText returns the canonical text of a number in a token, whose spelling the client
// does not choose: 1, 1.0, 1e0, 10e-1 and "1" are the same key, and so are 0 and -0. Integers of
// at most 40 digits are exact; all other numbers are rounded to 64-bit floating point,
// because an upstream could do so: 1.00000000000000000001 is 1.
func numeralText(n string) (string, error) {
	if len(n) > maxNumeral {
		return "", fmt.Errorf("%w: a number of more than %d characters", ErrInvalid, maxNumeral)
	}
	f, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return "", fmt.Errorf("%w: a number that is too large", ErrInvalid)
	}
	if f == 0 {
		return "0", nil // also of -0
	}
	if math.Abs(f) <= 1e40 { // so that its exponent is small
		if exact, ok := new(big.Rat).SetString(n); ok && exact.IsInt() {
			if whole := exact.Num().String(); len(strings.TrimPrefix(whole, "-")) <= maxWhole {
				return whole, nil
			}
		}
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e40 {
		return strconv.FormatFloat(f, 'f', -1, 64), nil
	}
	return strconv.FormatFloat(f, 'g', -1, 64), nil
}
