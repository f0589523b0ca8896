package http2

import (
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// The header blocks that are sent refer only to the static table of HPACK, as those of
// nginx and HAProxy do: maintaining a dynamic table costs more than all else that a
// response needs, and a table that a client fills by its requests can be probed for
// secrets (RFC 7541 section 7.1).
const (
	literal      = 0x00 // literal field without indexing (RFC 7541 section 6.2.2)
	neverIndexed = 0x10 // literal field that no proxy may index (RFC 7541 section 6.2.3)
	indexed      = 0x80 // indexed field (RFC 7541 section 6.1)
)

// A nameTable holds the beginning of a field line for each well-known name: its index in
// the static table, or its spelling.
type nameTable [64]string

func newNameTable() (t nameTable) {
	static := map[string]int{ // RFC 7541 appendix A
		"accept": 19, "accept-encoding": 16, "accept-language": 17, "age": 21, "authorization": 23, "cache-control": 24,
		"content-encoding": 26, "content-length": 28, "content-range": 30, "content-type": 31, "cookie": 32, "date": 33,
		"etag": 34, "expect": 35, "host": 38, "last-modified": 44, "location": 46, "max-forwards": 47,
		"proxy-authenticate": 48, "proxy-authorization": 49, "referer": 51, "retry-after": 53, "server": 54,
		"set-cookie": 55, "user-agent": 58, "vary": 59, "via": 60, "www-authenticate": 61,
	}
	for n := http1.Other + 1; n <= http1.ProxyAuthorization; n++ {
		name := strings.ToLower(n.String())
		kind := byte(literal)
		if n == http1.SetCookie {
			kind = neverIndexed
		}
		if index := static[name]; index > 0 {
			t[n] = string(appendInt(nil, kind, 4, index))
		} else {
			t[n] = string(appendString([]byte{kind}, name))
		}
	}
	return t
}

// appendInt appends an integer whose first byte has a prefix of so many bits for it (RFC
// 7541 section 5.1). The other bits of that byte are those of first.
func appendInt(dst []byte, first byte, bits, i int) []byte {
	most := 1<<bits - 1
	if i < most {
		return append(dst, first|byte(i))
	}
	dst = append(dst, first|byte(most))
	for i -= most; i >= 0x80; i >>= 7 {
		dst = append(dst, byte(i)|0x80)
	}
	return append(dst, byte(i))
}

// appendString appends a string without Huffman coding (RFC 7541 section 5.2).
func appendString(dst []byte, s string) []byte {
	if len(s) < 0x7f {
		dst = append(dst, byte(len(s)))
	} else {
		dst = appendInt(dst, 0, 7, len(s))
	}
	return append(dst, s...)
}

// appendStatus appends the status, which has three digits.
func appendStatus(dst []byte, status int) []byte {
	index := 0 // in the static table
	switch status {
	case 200:
		index = 8
	case 204:
		index = 9
	case 206:
		index = 10
	case 304:
		index = 11
	case 400:
		index = 12
	case 404:
		index = 13
	case 500:
		index = 14
	default:
		dst = append(dst, literal|8, 3)
		return strconv.AppendInt(dst, int64(status), 10)
	}
	return append(dst, indexed|byte(index))
}

// ofConnection is the set of fields that must not be sent over HTTP/2 (RFC 9113 section
// 8.2.2).
const ofConnection http1.NameSet = 1<<http1.Connection | 1<<http1.KeepAlive | 1<<http1.ProxyConnection |
	1<<http1.TransferEncoding | 1<<http1.Upgrade

// appendField appends a field line, unless it concerns only a connection. It returns
// ErrOutgoing if the line is not valid.
func (t *nameTable) appendField(dst []byte, f http1.Field) ([]byte, error) {
	if !http1.ValidValue(f.Value) {
		return dst, http1.ErrOutgoing
	}
	if f.ID != http1.Other {
		if ofConnection>>f.ID&1 != 0 {
			return dst, nil
		}
		return appendString(append(dst, t[f.ID]...), f.Value), nil
	}
	if !http1.ValidName(f.Name) {
		return dst, http1.ErrOutgoing
	}
	dst = appendInt(append(dst, literal), 0, 7, len(f.Name))
	for i := range len(f.Name) {
		c := f.Name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return appendString(dst, f.Value), nil
}
