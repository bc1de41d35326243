// What a client reads, makes and sends at most for a server that it does not trust: docs/specification.md, "Limits of a client".

export const MOST_SPECIFICATION_BYTES = 16 * 2 ** 20;
/** Lists and objects of a specification, and names in its objects: each costs far more memory than the characters that ask for it. */
export const MOST_SPECIFICATION_PARTS = 2 ** 20;
/** Of any other JSON: a description, a job, a list of keys. */
export const MOST_JSON_BYTES = 2 ** 20;
/** Of an answer that is an error, and of what is shown of it. */
export const MOST_ERROR_BYTES = 2 ** 16;
export const MOST_MESSAGE_CHARACTERS = 2000;
/** Of one server-sent event. All events of a request have the first bytes at once, and so many more a second. */
export const MOST_EVENT_BYTES = 2 ** 16;
export const FIRST_EVENT_BYTES = 2 ** 20;
export const EVENT_BYTES_A_SECOND = 4096;
/** Of the ciphertexts in one answer: a batch whose answer would be larger is divided, a sample's is refused. */
export const MOST_ANSWER_BYTES = 64 * 2 ** 20;
/** Keys beyond this are made and sent only after a question. */
export const MOST_KEY_BYTES_UNASKED = 100e6;
/** Steps of a specification before encryption, nested ones included. */
export const MOST_STEPS = 1000;
/** Columns of a table after a step, and of all steps together. */
export const MOST_COLUMNS = 2 ** 20;
export const MOST_COLUMNS_OF_ALL_STEPS = 2 ** 22;
/** Samples times columns after any step, unless the samples have as many numbers themselves. */
export const MOST_NUMBERS_AT_ONCE = 2 ** 24;
/** Bytes a second; a connection that is slower for longer than the client's timeout is given up. */
export const SLOWEST_UPLOAD = 8192;
export const SLOWEST_DOWNLOAD = 1024;
