package org.bertzoo.sample

import java.io.DataInputStream
import java.io.DataOutputStream
import java.io.File
import java.io.IOException
import kotlin.math.abs
import kotlin.math.max
import kotlin.math.roundToInt
import kotlin.math.sqrt

/**
 * Texts and their vectors, to search by meaning, without Android classes.
 *
 * A vector is int8, scaled so that its largest number is 127; cosines change by rounding alone.
 */
class TextIndex private constructor(
    val texts: List<String>,
    private val size: Int, // numbers of a vector
    private val vectors: ByteArray, // one vector after the other
) {
    /** Returns the texts with the largest cosines to a query's vector, and these cosines, the largest first. */
    fun nearest(query: FloatArray, count: Int): List<Pair<String, Float>> {
        check(texts.isEmpty() || query.size == size) {
            "The query has ${query.size} numbers, and the index $size. Build the index with the same model."
        }
        val length = sqrt(query.sumOf { (it * it).toDouble() })
        return texts.mapIndexed { row, text ->
            var dot = 0.0
            var squares = 0.0
            for (at in 0 until size) {
                val value = vectors[row * size + at].toInt()
                dot += value * query[at]
                squares += value * value
            }
            text to (dot / max(length * sqrt(squares), 1e-12)).toFloat()
        }.sortedByDescending { it.second }.take(count)
    }

    /** Writes the index to a file. key: what `read` must be given, such as hashes of the model and of the texts. */
    fun write(file: File, key: String) {
        val part = File("$file.part")
        DataOutputStream(part.outputStream().buffered()).use { output ->
            output.writeUTF(key)
            output.writeInt(size)
            output.writeInt(texts.size)
            for (text in texts) text.toByteArray().let { bytes ->
                output.writeInt(bytes.size)
                output.write(bytes)
            }
            output.write(vectors)
        }
        check(part.renameTo(file)) { "$part cannot be renamed to $file." }
    }

    companion object {
        /** Returns the index of texts. embed: returns a text's vector. */
        fun build(texts: List<String>, embed: (String) -> FloatArray): TextIndex {
            var size = 0
            var vectors = ByteArray(0)
            texts.forEachIndexed { row, text ->
                val vector = embed(text)
                if (row == 0) {
                    size = vector.size
                    vectors = ByteArray(texts.size * size)
                }
                val scale = 127 / max(vector.maxOf { abs(it) }, 1e-12f)
                vector.forEachIndexed { at, value -> vectors[row * size + at] = (scale * value).roundToInt().toByte() }
            }
            return TextIndex(texts, size, vectors)
        }

        /** Returns the index in a file, or null if there is none, it has another key, or the file is damaged. */
        fun read(file: File, key: String): TextIndex? = try {
            if (file.exists()) DataInputStream(file.inputStream().buffered()).use { read(it, key, file.length()) } else null
        } catch (error: IOException) {
            null // the caller builds it anew
        }

        private fun read(input: DataInputStream, key: String, bytes: Long): TextIndex? {
            fun bounded(count: Long) = if (count in 0..bytes) count.toInt() else throw IOException("damaged index")
            if (input.readUTF() != key) return null
            val size = input.readInt()
            val texts = List(bounded(input.readInt().toLong())) {
                String(ByteArray(bounded(input.readInt().toLong())).also(input::readFully))
            }
            return TextIndex(texts, size, ByteArray(bounded(texts.size.toLong() * size)).also(input::readFully))
        }
    }
}
