package simulate

import (
	"bytes"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// stringOf returns b as a string that shares its memory. It is valid as long as b is unchanged.
func stringOf(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

var errJSON = errors.New("not JSON")

// unescape decodes the escapes of a JSON string in place; the result is never longer.
func unescape(b []byte) ([]byte, error) {
	i := bytes.IndexByte(b, '\\')
	if i < 0 {
		return b, nil
	}
	out := b[:i]
	for i < len(b) {
		if b[i] != '\\' {
			out = append(out, b[i])
			i++
			continue
		}
		if i+1 >= len(b) {
			return nil, errJSON
		}
		c := b[i+1]
		i += 2
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'x': // written by nginx for bytes that are not text, unless it is configured with escape=json
			v, ok := parseHex(b, i, 2)
			if !ok {
				return nil, errJSON
			}
			out = append(out, byte(v))
			i += 2
		case 'u':
			v, ok := parseHex(b, i, 4)
			if !ok {
				return nil, errJSON
			}
			i += 4
			if utf16.IsSurrogate(v) && i+6 <= len(b) && b[i] == '\\' && b[i+1] == 'u' {
				if low, ok := parseHex(b, i+2, 4); ok {
					if v = utf16.DecodeRune(v, low); v != utf8.RuneError { // else what follows stands for itself
						i += 6
					}
				}
			}
			out = utf8.AppendRune(out, v)
		default:
			return nil, errJSON
		}
	}
	return out, nil
}

// parseHex parses n hexadecimal digits at i.
func parseHex(b []byte, i, n int) (v rune, ok bool) {
	if i+n > len(b) {
		return 0, false
	}
	for _, c := range b[i : i+n] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, true
}

// parseNumber parses a non-negative decimal number; its fraction is returned in billionths.
func parseNumber(s string) (whole, billionths int64, ok bool) {
	i := 0
	for ; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
		if whole > 1<<62/10 {
			return 0, 0, false
		}
		whole = whole*10 + int64(s[i]-'0')
	}
	if i == 0 {
		return 0, 0, false
	}
	if i == len(s) {
		return whole, 0, true
	}
	if s[i] != '.' {
		return 0, 0, false
	}
	scale := int64(100_000_000)
	for i++; i < len(s); i++ {
		if s[i] < '0' || '9' < s[i] {
			return 0, 0, false
		}
		billionths += int64(s[i]-'0') * scale
		scale /= 10
	}
	return whole, billionths, true
}
