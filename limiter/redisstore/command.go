package redisstore

import (
	"bytes"
	"fmt"
	"strconv"
)

// appendBulk appends text as one argument of a command.
func appendBulk[T string | []byte](out []byte, text T) []byte {
	out = appendHeader(out, '$', len(text))
	out = append(out, text...)
	return append(out, "\r\n"...)
}

func appendHeader(out []byte, kind byte, n int) []byte {
	out = strconv.AppendInt(append(out, kind), int64(n), 10)
	return append(out, "\r\n"...)
}

// appendCount appends a number as one argument.
func appendCount(out []byte, n int) []byte {
	var digits [20]byte
	return appendBulk(out, strconv.AppendInt(digits[:0], int64(n), 10))
}

// appendCall appends the command that runs sc on p.
func (p *payload) appendCall(out []byte, sc *script) []byte {
	n := 5 + p.nKeys // EVALSHA, hash, number of keys, limits, windows
	if len(p.requests) > 0 {
		n++
	}
	if len(p.follows) > 0 {
		n++
	}
	out = append(appendHeader(out, '*', n), sc.call...)
	out = append(appendCount(out, p.nKeys), p.keys...)
	out = appendBulk(appendBulk(out, p.limits), p.windows)
	if len(p.requests) > 0 {
		out = appendBulk(out, p.requests)
	}
	if len(p.follows) > 0 {
		out = appendBulk(out, p.follows)
	}
	return out
}

// appendCall appends the command that runs a script on those keys with those arguments,
// which are texts and whole numbers. call is the beginning of the command.
func appendCall(out []byte, call string, keys []string, args []any) []byte {
	out = append(appendHeader(out, '*', 3+len(keys)+len(args)), call...)
	out = appendCount(out, len(keys))
	for _, k := range keys {
		out = appendBulk(out, k)
	}
	for _, a := range args {
		if text, ok := a.([]byte); ok {
			out = appendBulk(out, text)
		} else {
			out = appendBulk(out, fmt.Sprint(a))
		}
	}
	return out
}

// keyNames are the names of all keys of p.
func (p *payload) keyNames() []string {
	all := make([]string, 0, p.nKeys)
	for rest := p.keys; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\r')
		n, _ := number(rest[1:end])
		begin := end + len("\r\n")
		all = append(all, string(rest[begin:begin+int(n)]))
		rest = rest[begin+int(n)+len("\r\n"):]
	}
	return all
}
