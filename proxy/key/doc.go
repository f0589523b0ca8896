// Package key extracts the keys that limits count by from requests. It reads their texts,
// normalizes them, and hashes the result, so that stores never see what clients sent.
//
// # Ambiguity
//
// Keys, costs, lists, idempotency keys and routes depend only on data that all common servers
// read in the same way. If servers differ, the request is refused with 400 (ErrAmbiguous,
// ErrMismatch), or matched to the stricter route. So a limit applies to the value that the
// upstream uses, whatever framework it is written in. OnMissing and OnInvalid do not change
// this: on_invalid: skip accepts a text that no server reads as a phone number, but not one
// that some servers do.
//
// # Names
//
// A field counts under its exact name. A request with another name that some server treats as
// the same is refused, whether or not the exact name is present too: FoldHeader, Names. Names
// of header fields are case-insensitive.
//
//	sent                      is read as by
//	X_Phone, X.Phone: header  X-Phone    CGI, FastCGI, WSGI, Rack, PHP: other characters become "_"
//	user.id, user id, user[id user_id    PHP, in queries, forms and cookies
//	" phone"                  phone      PHP; with a trailing space: servers that trim names
//	phone[], phone[x]         phone      PHP, Rails, qs (Express): a list, or a map
//	[phone], phone], phone[]x phone      Rack, qs
//	phone NUL x               phone      servers with C strings; PHP
//	!phone                    phone      Spring's data binder
//	?phone, as in /a??phone   phone      PHP
//	Phone                     phone      ASP.NET, and databases behind others
//	p%68one: cookie           phone      PHP before 7.4.11, Rack
//	filter, filter[phone][]   filter[phone]  PHP, Rails, qs: one replaces or hides the other
//
// # Values
//
//	sent                      one server reads     another reads             Weir
//	phone=1&phone=2           the first: Go, Java  the last: PHP, Rails      400
//	                          both: Express
//	a=1;phone=2               one: Go refuses it   two: old Python, Perl     400
//	% that is no escape       as it is             refuses, or drops it      400
//	digits beyond ASCII       dropped by \D: Java, as digits: Python, \d     400, in digits and
//	                          JavaScript, Go, PHP  with Unicode, int()       e164
//	letters, blanks, marks of dropped by \D        dropped, or no number:    dropped by digits; by
//	no width in a number                           phone libraries           e164 only where all agree
//	                                                                         that it is a number, else 400
//	+86 138... ext 7          the number and 7     the number: phone         400 in e164 (extensions:
//	                          as digits: \D        libraries                 keep counts the number)
//	bytes >= 0x80 in a header Latin-1: WSGI, Node, UTF-8: Go, PHP            400, but for digits and
//	                          Tomcat                                         e164, which drop them
//	... that are numbers in   superscript two      part of a letter          400
//	Latin-1, as of "\uff0b",
//	in a header or a form
//	tab in a header           kept                 a blank, or the end       400
//	no UTF-8                  replaced: Python     kept: Go, PHP; Latin-1,   400
//	                                               or escapes: Java, Node
//	NUL                       kept                 the end: C, databases     400
//	blanks at an end          kept                 dropped: Laravel, Django  400, but for trim
//	other control characters  kept                 dropped: Java's trim()    400
//	size=010                  10                   8: octal, in old readers  400 as a cost
//
// # Cookies
//
//	sid = 1, sid= 1, sid=1 ;  trimmed: Go, Node    "sid_", " 1": PHP         400
//	sid="1", sid="\061"       1: Python, Tomcat    with quotes: Node's, PHP  400
//	a="; sid=1; b="           one cookie: old      three: all others         400
//	                          Java, Python
//	a=2, sid=1                one                  two: RFC 2109             400
//	two Cookie fields         joined with "; "     joined with ","           400
//	s%3A1                     decoded: PHP, Express  as it is: Go, Django    decoded: one key for both
//	a%20b, %22a%22, %zz       decoded              as it is, or otherwise    400
//	a+b                       as it is             a blank: Rack, gin        400; a%2Bb is a+b
//	j:1, j%3A[1]              as it is             JSON: cookie-parser       400
//	=sid=1                    no cookie            sid                       400
//
// # Bodies
//
// A body must have one Content-Type and no content coding. Its charset must be UTF-8, or
// us-ascii or iso-8859-1 if it has only ASCII, also behind the escapes of a form.
//
// JSON is application/json, text/json, or application/*+json. One byte order mark may precede
// it: servers skip it, or read no JSON. It must have no duplicate names, also in different
// case, no trailing data, no comments, and at most 64 levels. The number 42 is the text "42".
// A number that is not a plain integer, or is beyond 2^53-1, is refused: 42.0 is 42 in
// JavaScript and "42.0" in Python, 1e10 is "1.0E10" in Java, and JavaScript rounds. Booleans
// are refused, because true is "1" in PHP.
//
// A form must have no semicolons and no invalid escapes, and the field of the key must not be
// in the query. It may end with a line break (CRLF), which most servers read as the end of its
// last value, and few remove. If that value is the key, it is refused unless trim, digits or
// e164 removes the line break.
//
// A multipart form must follow a strict grammar (body.go). It has what common clients
// write: a name with or without quotes, a file's name also as filename*, a semicolon behind
// the boundary, a Content-Transfer-Encoding that encodes nothing (7bit, 8bit, binary). These
// are refused:
//
//	sent                              differs in
//	two boundaries, a quoted one      PHP takes the first word "boundary" in the field; others the last parameter
//	text before, or after the end     old readers go on, and find parts there
//	line feeds alone                  Go, PHP and busboy part there, others do not
//	blanks behind a boundary          RFC 2046 allows them, busboy does not
//	a line that begins like one       some compare no further than the boundary is long
//	name='phone', name="ph\one"       with and without the quotes, or the backslash
//	name="=?utf-8?B?cGhvbmU=?="       phone: Tomcat decodes RFC 2047
//	two names, name*=, name*0=        the first: PHP; the last; or the extended one: Python
//	fields in folded lines            joined, cut, or left out
//	quoted-printable, base64          decoded by Go, Java and Python, and not by PHP and busboy
//	plain text in another charset     decoded, or read as UTF-8
//	parts in a part                   read by few, and flat
//	phone as a file                   no field to most; a field to PHP if filename is written otherwise
//
// # Authorization
//
// Authorization must be a scheme, one space, and credentials. Two spaces or a tab are skipped
// by some servers (regular expressions, split), and part of the token, or no token, for others
// (substr). A token without a scheme is accepted by servers that only remove "Bearer ".
// "Basic x, Bearer y" is y in Laravel. All these are refused with 400 if a key is read from a
// token; none of them counts as a request without a token.
//
// # Query and body
//
// Rails' params, PHP's $_REQUEST, Flask's values, Go's FormValue and Java's getParameter do not
// distinguish the query from a form in the body, and Rails takes a parameter of the query before
// a member of JSON. Therefore a key from a form or from JSON must not be in the
// query, with or without a body. If a key or a cost is read from the query, the body must not
// be a form, whatever it contains; this is decided by Content-Type, without reading the body. A
// Spec that is read from both compares them (must_equal), and reads the body like that of any
// key. A key from the query is not looked for in other bodies: where the upstream takes a member
// of JSON before it, as Laravel's input and Phoenix' params do, compare both.
//
// If an upstream reads the value from another place, set_header passes it the counted value.
//
// # Concurrency
//
// A Spec is immutable once compiled and safe for concurrent use, as are Phone, Tokens, List and
// Names. A Value belongs to one request.
package key
