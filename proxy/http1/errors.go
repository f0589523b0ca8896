package http1

// An Error says why a message is refused. Status is what a client is answered
// whose request it was; what is wrong with an upstream's response is always 502
// for the client. All errors of this kind are values of this package, so that
// they can be counted by identity, and each ends its connection.
type Error struct {
	Status int
	text   string
}

func (e *Error) Error() string { return e.text }

// What is refused in a request or a response. The package comment has the
// sections of the RFCs.
var (
	ErrRequestLine             = &Error{400, "request line not valid"}
	ErrMethod                  = &Error{400, "method not valid"}
	ErrConnect                 = &Error{405, "method CONNECT not allowed"}
	ErrTarget                  = &Error{400, "request target not valid"}
	ErrTargetTooLong           = &Error{414, "request target too long"}
	ErrVersion                 = &Error{400, "HTTP version not valid"}
	ErrMajorVersion            = &Error{505, "HTTP version not supported"}
	ErrStatusLine              = &Error{502, "status line not valid"}
	ErrLineEnd                 = &Error{400, "line does not end with CRLF"}
	ErrFoldedLine              = &Error{400, "folded field line"}
	ErrFieldName               = &Error{400, "field name not valid"}
	ErrFieldValue              = &Error{400, "field value not valid"}
	ErrTooLarge                = &Error{431, "header section too large"}
	ErrTooManyFields           = &Error{431, "too many fields"}
	ErrHost                    = &Error{400, "Host not valid"}
	ErrHostMissing             = &Error{400, "Host missing"}
	ErrHostRepeated            = &Error{400, "Host given more than once"}
	ErrContentLength           = &Error{400, "Content-Length not valid"}
	ErrContentLengthRepeated   = &Error{400, "Content-Length given more than once"}
	ErrLengthAndTransferCoding = &Error{400, "both Content-Length and Transfer-Encoding"}
	ErrTransferCoding          = &Error{501, "transfer coding not supported"}
	ErrTransferCodingHTTP10    = &Error{400, "Transfer-Encoding in HTTP/1.0"}
	ErrExpectation             = &Error{417, "expectation not supported"}
	ErrChunk                   = &Error{400, "chunk not valid"}
	ErrChunkLine               = &Error{400, "chunk line too long"}
	ErrChunkOverhead           = &Error{400, "too little data for so many chunk lines"}
	ErrTrailer                 = &Error{400, "trailer section not valid"}
)

// What is wrong on a connection to an upstream, or with what this side is to
// send.
var (
	ErrTooManyInterim    = &Error{502, "too many interim answers"}
	ErrUnexpectedUpgrade = &Error{502, "101 for a protocol that was not asked for"}
	ErrTruncated         = &Error{502, "message cut short"}
	ErrOutgoing          = &Error{500, "field to be sent not valid"}
	ErrBodyTooLong       = &Error{500, "more body than its length says"}
	ErrBodyTooShort      = &Error{500, "less body than its length says"}
	ErrResponseState     = &Error{500, "answer already begun"}
)
