// What a client reads, makes and sends at most for a server that it does not trust: docs/howto/client.md, "A server that is not trusted".

export const MOST_SPECIFICATION_BYTES = 16 * 2 ** 20;
/** Lists and objects in it: each costs far more memory than the characters that ask for it. */
export const MOST_SPECIFICATION_PARTS = 2 ** 18;
/** Of any other JSON: a description, a job, a list of keys. */
export const MOST_JSON_BYTES = 2 ** 20;
/** Of lists of everything that there is. */
export const MOST_LIST_BYTES = 16 * 2 ** 20;
/** Of an answer that is an error, and of what is shown of it. */
export const MOST_ERROR_BYTES = 2 ** 16;
export const MOST_MESSAGE_CHARACTERS = 900;
/** Of one server-sent event. All events of a request have the first bytes at once, and so many more a second. */
export const MOST_EVENT_BYTES = 2 ** 16;
export const FIRST_EVENT_BYTES = 2 ** 20;
export const EVENT_BYTES_A_SECOND = 4096;
/** Of the words of a batch and its answer in memory; a sample whose answer is larger is refused. */
export const MOST_BATCH_BYTES = 64 * 2 ** 20;
/** Keys beyond this are made and sent only after a question. */
export const MOST_KEY_BYTES_UNASKED = 100e6;
/** Steps of a specification before encryption, nested ones included. */
export const MOST_STEPS = 1000;
/** Columns of a table after a step. */
export const MOST_COLUMNS = 2 ** 20;
/** Numbers of one sample before a step and twice those after it, which is what the step holds. */
export const MOST_NUMBERS_OF_A_SAMPLE = 2 ** 22;
/** The same of all samples, or so many for each number that the user gives. */
export const MOST_NUMBERS_AT_ONCE = 2 ** 24;
export const NUMBERS_FOR_A_NUMBER = 16;
/** Numbers that all steps compute of all samples, or so many for each number that the user gives. */
export const MOST_WORK = 2 ** 27;
export const WORK_FOR_A_NUMBER = 256;
/** Characters of all pieces of all texts, or so many for each of their characters. */
export const MOST_PIECE_CHARACTERS = 2 ** 24;
export const PIECE_CHARACTERS_FOR_A_CHARACTER = 64;
/** Bytes a second; a connection that is slower for longer than the client's timeout is given up. */
export const SLOWEST_UPLOAD = 8192;
export const SLOWEST_DOWNLOAD = 1024;
